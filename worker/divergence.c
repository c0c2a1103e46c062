#include "worker/divergence.h"

#include "worker/device/dtype.h"

#include "common/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SCALE_TEXT_MAX = 96, REMEDY_TEXT_MAX = 128 };

static bool is_fp16(const struct trainer *t)
{
    return dtype_of(t->config->train.precision) == DTYPE_FP16;
}

/* Without a scaler the update has spoilt the weights of every rank alike, so nothing is
 * to be saved. A loss that is not finite comes from the weights or the data: no scale of
 * it is to blame. But one sample is enough for activations to leave fp16's range: such a
 * step is skipped, as torch's are, and if the weights are to blame the scale will end. */
bool divergence_is(const struct trainer *t, const struct metrics_line *line)
{
    bool is_lost = t->scaler.is_on ? grad_scaler_is_exhausted(&t->scaler)
                                   : !isfinite(line->grad_norm);

    return is_lost || (!isfinite(line->loss) && !(t->scaler.is_on && is_fp16(t)));
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
static void name_remedy(const struct trainer *t, bool is_loss,
                        char text[REMEDY_TEXT_MAX])
{
    bool sums_fp16 = dtype_of(t->config->parallel.reduce_dtype) == DTYPE_FP16;
    const char *sums = sums_fp16 ? "parallel.reduce_dtype=bf16" : "";

    text[0] = '\0';
    if (is_fp16(t)) {
        (void)snprintf(text, REMEDY_TEXT_MAX, "set %strain.precision=bf16%s%s, ",
                       t->scaler.is_on ? "" : "train.grad_scaler=true or ",
                       sums_fp16 ? " and " : "", sums);
    } else if (sums_fp16 && !is_loss) {
        (void)snprintf(text, REMEDY_TEXT_MAX, "set %s, ", sums);
    }
}

void divergence_tell(const struct trainer *t, const struct metrics_line *line,
                     struct errmsg *msg)
{
    bool is_loss = !isfinite(line->loss);
    struct checkpoint_entry *entry = NULL;
    const char *last = "there is no checkpoint";
    char scale[SCALE_TEXT_MAX];
    char remedy[REMEDY_TEXT_MAX];
    size_t n = 0;

    if (checkpoint_list(t->config->checkpoint.dir, &entry, &n, NULL) == 0 && n > 0) {
        last = strrchr(entry[0].path, '/') + 1; /* the first is the newest */
    }
    name_scale(t, line, scale);
    name_remedy(t, is_loss, remedy);
    (void)errmsg_set(msg, ERR_NOT_FINITE,
                     "the %s of step %" PRIu64 " is not finite (%s%s): training stops; "
                     "%s%s; %slower optim.lr, %s, or raise optim.warmup",
                     is_loss ? "loss" : "gradient", line->step,
                     name_value(is_loss ? line->loss : line->grad_norm), scale,
                     n > 0 ? "the last checkpoint is " : "", last, remedy,
                     t->config->train.grad_clip > 0 ? "or train.grad_clip"
                                                    : "set train.grad_clip");
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
