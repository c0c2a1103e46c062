#ifndef WORKER_DEVICE_DTYPE_H
#define WORKER_DEVICE_DTYPE_H

/* PURE. What the elements of a tensor are rounded to. Storage is fp32 throughout: a
 * bf16 or fp16 number is an fp32 one that has only its bits.
 *
 * Rounding is IEEE's, to the nearest and of two equally near to the even one; what is
 * too large for fp16 becomes infinite, what is too small for its normal numbers one of
 * its subnormal ones, and NaN stays NaN. */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum dtype { DTYPE_FP32, DTYPE_BF16, DTYPE_FP16 };

/* Of a name of the configuration: "fp32", "bf16" or "fp16". */
static inline enum dtype dtype_of(const char *name)
{
    if (strcmp(name, "bf16") == 0) {
        return DTYPE_BF16;
    }
    return strcmp(name, "fp16") == 0 ? DTYPE_FP16 : DTYPE_FP32;
}

/* Without the last `n` bits of a normal fp32 number's fraction. */
static inline float dtype_cut(float x, int n)
{
    uint32_t u, unit = UINT32_C(1) << n;

    memcpy(&u, &x, sizeof(u));
    if (isnan(x)) {
        u |= UINT32_C(1) << 22; /* quiet, whatever bits are lost */
    } else {
        u += (unit >> 1) - 1 + ((u >> n) & 1);
    }
    u &= ~(unit - 1);
    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline float dtype_round(float x, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_FP32:
        break;
    case DTYPE_BF16:
        return dtype_cut(x, 16);
    case DTYPE_FP16:
        if (fabsf(x) < 0x1p-14F) { /* in [1/2, 1) the last place is 2⁻²⁴, as here */
            return copysignf((fabsf(x) + 0.5F) - 0.5F, x);
        }
        x = dtype_cut(x, 13);
        return fabsf(x) > 65504.0F ? copysignf(INFINITY, x) : x;
    }
    return x;
}

#endif
