#include "worker/optim/grad_scaler.h"

#include "common/check.h"

struct grad_scaler grad_scaler_new(const struct grad_scaler_config *config, bool is_on)
{
    return (struct grad_scaler){
        .config = *config, .is_on = is_on, .scale = (float)config->init_scale};
}

float grad_scaler_factor(const struct grad_scaler *s)
{
    return s->is_on ? s->scale : 1.0F;
}

/* As torch's unscale_: the quotient in double, rounded once. */
float grad_scaler_inverse(const struct grad_scaler *s)
{
    return s->is_on ? (float)(1.0 / (double)s->scale) : 1.0F;
}

/* The interval may have been made shorter since the tracker was saved. */
static void grow(struct grad_scaler *s)
{
    float grown = (float)((double)s->scale * s->config.growth_factor);

    s->growth_tracker++;
    if (s->growth_tracker < s->config.growth_interval) {
        return;
    }
    s->growth_tracker = 0;
    s->scale = grown <= GRAD_SCALER_CEILING ? grown : s->scale;
}

void grad_scaler_update(struct grad_scaler *s, bool found_inf)
{
    ASSERT(s->is_on);
    if (!found_inf) {
        grow(s);
        return;
    }
    s->scale = (float)((double)s->scale * s->config.backoff_factor);
    s->growth_tracker = 0;
    s->skipped++;
}

bool grad_scaler_is_exhausted(const struct grad_scaler *s)
{
    return s->is_on && s->scale < GRAD_SCALER_FLOOR;
}
