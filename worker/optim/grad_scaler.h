#ifndef WORKER_OPTIM_GRAD_SCALER_H
#define WORKER_OPTIM_GRAD_SCALER_H

/* PURE. Dynamic loss scaling: torch.amp.GradScaler's state and arithmetic, bit for bit
 * up to the ceiling.
 *
 *   gradients of scale · loss ─► times grad_scaler_inverse ─► norm, clip, AdamW
 *   one of them not finite ────► no update; scale · backoff_factor
 *   growth_interval updates in a row ──────► scale · growth_factor, up to the ceiling
 */

#include <stdbool.h>
#include <stdint.h>

/* A gradient that overflows at this scale does so without any: smaller ones only lose
 * small gradients. torch leaves it to its user to look; DeepSpeed ends here, too. */
#define GRAD_SCALER_FLOOR 1.0F

/* 2^126. The inverse of a larger scale is subnormal, and counts as 0 on the compute
 * threads. It does not grow past it; torch's may, up to the largest fp32 number. */
#define GRAD_SCALER_CEILING 0x1p126F

struct grad_scaler_config {
    double init_scale;
    double growth_factor, backoff_factor;
    int32_t growth_interval;
};

struct grad_scaler {
    struct grad_scaler_config config;
    bool is_on;  /* off: the rest stays as it is, for a later start that turns it on */
    float scale; /* of the next step's loss */
    int32_t growth_tracker; /* updates in a row */
    uint64_t skipped;       /* steps without an update, ever */
};

struct grad_scaler grad_scaler_new(const struct grad_scaler_config *config, bool is_on);

/* What multiplies the loss: 1 when it is off. */
float grad_scaler_factor(const struct grad_scaler *s);

/* What multiplies the gradients. */
float grad_scaler_inverse(const struct grad_scaler *s);

/* After a step, when it is on. */
void grad_scaler_update(struct grad_scaler *s, bool found_inf);

/* It has come down so far that it cannot help any more. */
bool grad_scaler_is_exhausted(const struct grad_scaler *s);

#endif
