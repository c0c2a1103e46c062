#include "worker/divergence.h"

#include "common/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SCALE_TEXT_MAX = 96 };

/* Without a scaler the update has spoilt the weights of every rank alike, so nothing is
 * to be saved. A loss that is not finite comes from the weights or the data: no scale of
 * it is to blame. */
bool divergence_is(const struct trainer *t, const struct metrics_line *line)
{
    bool is_lost = t->scaler.is_on ? grad_scaler_is_exhausted(&t->scaler)
                                   : !isfinite(line->grad_norm);

    return is_lost || !isfinite(line->loss);
}

static const char *name_value(double value)
{
    if (isnan(value)) {
        return "nan"; /* printf would show its sign, which means nothing */
    }
    return value < 0 ? "-inf" : "inf";
}

static void name_scale(const struct trainer *t, const struct metrics_line *line,
                       char text[SCALE_TEXT_MAX])
{
    text[0] = '\0';
    if (t->scaler.is_on) {
        (void)snprintf(text, SCALE_TEXT_MAX, ", at a loss scale of %.9g%s",
                       line->loss_scale, /* fits */
                       grad_scaler_is_exhausted(&t->scaler)
                           ? ", and one below 1 does not help"
                           : "");
    }
}

/* fp16 ends at 65504, where bf16 goes as far as fp32. */
static const char *name_wider(const struct trainer *t, bool is_loss)
{
    bool sums_fp16 = strcmp(t->config->parallel.reduce_dtype, "fp16") == 0;

    if (strcmp(t->config->train.precision, "fp16") == 0) {
        return sums_fp16
                   ? ", or take train.precision=bf16 and parallel.reduce_dtype=bf16"
                   : ", or take train.precision=bf16";
    }
    return sums_fp16 && !is_loss ? ", or take parallel.reduce_dtype=bf16" : "";
}

void divergence_tell(const struct trainer *t, const struct metrics_line *line,
                     struct errmsg *msg)
{
    bool is_loss = !isfinite(line->loss);
    struct checkpoint_entry *entry = NULL;
    const char *last = "there is no checkpoint";
    char scale[SCALE_TEXT_MAX];
    size_t n = 0;

    if (checkpoint_list(t->config->checkpoint.dir, &entry, &n, NULL) == 0 && n > 0) {
        last = strrchr(entry[0].path, '/') + 1; /* the first is the newest */
    }
    name_scale(t, line, scale);
    (void)errmsg_set(msg, ERR_NOT_FINITE,
                     "the %s of step %" PRIu64 " is not finite (%s%s): training stops; "
                     "%s%s; lower optim.lr, %s, or raise optim.warmup%s",
                     is_loss ? "loss" : "gradient", line->step,
                     name_value(is_loss ? line->loss : line->grad_norm), scale,
                     n > 0 ? "the last checkpoint is " : "", last,
                     t->config->train.grad_clip > 0 ? "or train.grad_clip"
                                                    : "set train.grad_clip",
                     name_wider(t, is_loss));
    mem_free(entry);
}

int divergence_share(const struct trainer *t, struct errmsg *msg)
{
    char text[sizeof(msg->text)] = "";
    size_t size;
    int rv;

    if (!t->store) {
        return 0;
    }
    if (trainer_leads(t)) {
        return store_client_set(t->store, "divergence", msg->text, strlen(msg->text),
                                msg);
    }
    rv = store_client_get(t->store, "divergence", text, sizeof(text) - 1, &size, msg);
    return rv < 0 ? rv : errmsg_set(msg, 0, "%s", text);
}
