#include "worker/report/progress.h"

#include "common/buf.h"
#include "common/str.h"

#include <math.h>
#include <stdio.h>

/* "842", "31.2k", "1.5M" */
static void format_count(double value, char *text, size_t size)
{
    static const char units[] = {'k', 'M', 'G', 'T'};
    int unit = -1;

    while (value >= 999.5 && unit + 1 < (int)sizeof(units)) {
        value /= 1000;
        unit++;
    }
    if (unit < 0) {
        (void)snprintf(text, size, "%.0f", value); /* cut is fine */
    } else {
        (void)snprintf(text, size, "%.*f%c", value < 99.95 ? 1 : 0, value, units[unit]);
    }
}

/* "0:42", "3:07:09", "12d 03:07" */
static void format_eta(double seconds, char *text, size_t size)
{
    unsigned long long s;

    if (!(seconds >= 0 && seconds < 1e9)) { /* NaN too */
        (void)snprintf(text, size, "?");    /* cut is fine */
        return;
    }
    s = (unsigned long long)(seconds + 0.5);
    if (s < 3600) {
        (void)snprintf(text, size, "%llu:%02llu", s / 60, s % 60);
    } else if (s < 86400) {
        (void)snprintf(text, size, "%llu:%02llu:%02llu", s / 3600, s / 60 % 60, s % 60);
    } else {
        (void)snprintf(text, size, "%llud %02llu:%02llu", s / 86400, s / 3600 % 24,
                       s / 60 % 60);
    }
}

/* "512M", "1.5G" */
static void format_bytes(uint64_t bytes, char *text, size_t size)
{
    static const char units[] = {'k', 'M', 'G', 'T'};
    double value = (double)bytes / 1024;
    int unit = 0;

    while (value >= 999.5 && unit + 1 < (int)sizeof(units)) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(text, size, "%.*f%c", value < 99.95 ? 1 : 0, value, units[unit]);
}

/* What the step took of the machine, as far as it is known; cut to `size`. */
static void format_resources(const struct metrics_line *line, char *text, size_t size)
{
    static const char *const queues[METRICS_QUEUES] = {"compute", "gather", "reduce",
                                                       "copy"};
    char now[32];
    char peak[32];
    char whose[16] = "";
    struct buf b;

    buf_init(&b, size - 1); /* what does not fit whole is left out */
    if (line->mfu > 0) {
        (void)buf_printf(&b, "  mfu %.0f%%", line->mfu * 100);
    }
    if (line->mem_bytes > 0) {
        format_bytes(line->mem_bytes, now, sizeof(now));
        format_bytes(line->mem_peak_max_bytes, peak, sizeof(peak));
        if (line->mem_peak_max_rank > 0) {
            (void)snprintf(whose, sizeof(whose), " r%d", line->mem_peak_max_rank);
        }
        (void)buf_printf(&b, "  mem %s peak %s%s", now, peak, whose);
    }
    for (size_t i = 0; i < METRICS_QUEUES; i++) {
        double share = line->step_s > 0 ? line->queue_s[i] / line->step_s : 0;

        if (share >= 0.01) {
            (void)buf_printf(&b, "  %s %.0f%%", queues[i], share * 100);
        }
    }
    (void)snprintf(text, size, "%.*s", (int)buf_len(&b), (const char *)buf_bytes(&b));
    buf_release(&b);
}

/* "  scale 2^16  skipped 1" */
static void format_scaler(const struct metrics_line *line, char *text, size_t size)
{
    char skipped[40] = "";
    int exponent;
    bool is_power = frexp(line->loss_scale, &exponent) == 0.5;

    text[0] = '\0';
    if (line->loss_scale <= 0) {
        return;
    }
    if (line->skipped_now > 0) {
        (void)snprintf(skipped, sizeof(skipped), "  skipped %llu",
                       (unsigned long long)line->skipped_now); /* fits */
    }
    if (is_power) {
        (void)snprintf(text, size, "  scale 2^%d%s", exponent - 1, skipped); /* too */
    } else {
        (void)snprintf(text, size, "  scale %.4g%s", line->loss_scale, skipped);
    }
}

/* A NaN of either sign is shown as "nan". */
static double unsigned_nan(double value)
{
    return isnan(value) ? (double)NAN : value;
}

void progress_format(const struct metrics_line *line, uint64_t n_steps, char *text,
                     size_t size)
{
    uint64_t left = n_steps > line->step ? n_steps - line->step : 0;
    char steps[48];
    char speed[32];
    char eta[32];
    char val[48] = "";
    char scaler[80];
    char resources[128];
    int width; /* of the last step's count */

    width = snprintf(steps, sizeof(steps), "%llu/%llu", (unsigned long long)n_steps,
                     (unsigned long long)n_steps);
    (void)snprintf(steps, sizeof(steps), "%llu/%llu", (unsigned long long)line->step,
                   (unsigned long long)n_steps); /* fits */
    format_count(line->tok_s, speed, sizeof(speed));
    format_eta((double)left * line->step_s, eta, sizeof(eta));
    if (!isnan(line->val_loss)) {
        (void)snprintf(val, sizeof(val), "  val %.4f",
                       line->val_loss); /* cut is fine */
    }
    format_scaler(line, scaler, sizeof(scaler));
    format_resources(line, resources, sizeof(resources));
    (void)snprintf(
        text, size, /* cut is fine */
        "step %-*s  loss %-7.4f  gnorm %-5.2f  lr %.1e  %5s tok/s  ETA %s%s%s%s", width,
        steps, unsigned_nan(line->loss), unsigned_nan(line->grad_norm), line->lr, speed,
        eta, val, scaler, resources);
}
