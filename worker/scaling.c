#include "worker/scaling.h"

#include <math.h>

void scaling_open(struct trainer *t)
{
    const struct train_config *c = t->config;
    const struct grad_scaler_config config = {
        .init_scale = c->train.init_scale,
        .growth_factor = c->train.growth_factor,
        .backoff_factor = c->train.backoff_factor,
        .growth_interval = (int32_t)c->train.growth_interval,
    };

    t->scaler = grad_scaler_new(&config, config_scales_loss(c));
    t->meta.scaler.is_there = t->scaler.is_on;
}

void scaling_save(struct trainer *t)
{
    if (t->meta.scaler.is_there) {
        t->meta.scaler.scale = t->scaler.scale;
        t->meta.scaler.growth_tracker = t->scaler.growth_tracker;
        t->meta.scaler.updates = t->step - t->scaler.skipped;
        t->meta.scaler.skipped = t->scaler.skipped;
    }
}

void scaling_restore(struct trainer *t, const struct checkpoint_scaler *saved)
{
    if (saved->is_there) {
        t->meta.scaler.is_there = true;
        t->scaler.scale = saved->scale;
        t->scaler.growth_tracker = saved->growth_tracker;
        t->scaler.skipped = saved->skipped;
    }
}

float scaling_of_leaf(const struct trainer *t)
{
    double tokens =
        (double)t->config->train.global_batch * (double)t->config->train.seq_len;

    return (float)(1.0 / tokens) * grad_scaler_factor(&t->scaler);
}

struct adamw_turn scaling_turn(const struct trainer *t)
{
    return (struct adamw_turn){
        .step = t->step + 1,
        .update = t->step + 1 - t->scaler.skipped,
        .unscale = grad_scaler_inverse(&t->scaler),
        .skip_not_finite = t->scaler.is_on,
    };
}

void scaling_after(struct trainer *t, struct metrics_line *line)
{
    if (t->scaler.is_on) {
        line->loss_scale = (double)t->scaler.scale;
        grad_scaler_update(&t->scaler, !isfinite(line->grad_norm));
        line->skipped = t->scaler.skipped;
    }
}
