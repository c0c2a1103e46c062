/* PURE. Counter-based initialisation: see init.h. */

#include "worker/model/init.h"

#include "worker/model/philox.h"

#include <math.h>
#include <string.h>

static const double std_normal = 0.02;

uint32_t init_name_hash(const char *name)
{
    uint32_t hash = 2166136261U;
    for (const char *p = name; *p != '\0'; p++) {
        hash = (hash ^ (uint8_t)*p) * 16777619U;
    }
    return hash;
}

static void fill(float *out, size_t n, float value)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = value;
    }
}

static void fill_normal(const struct tensor *tensor, uint64_t seed, double std,
                        float *out, size_t first, size_t n)
{
    uint32_t hash = init_name_hash(tensor->name);
    for (size_t i = first; i < first + n;) {
        size_t group = i / 4;
        double value[4];
        philox_normals(
            philox_block(seed, (struct philox){{(uint32_t)group,
                                                (uint32_t)(group >> 32), hash, 0}}),
            value);
        size_t end = MIN(group * 4 + 4, first + n);
        for (; i < end; i++) {
            out[i - first] = (float)(std * value[i % 4]);
        }
    }
}

void init_tensor(const struct tensor *tensor, uint64_t seed, int layers, float *out,
                 size_t first, size_t n)
{
    ASSERT(first <= tensor->size && n <= tensor->size - first);
    switch (tensor->init) {
    case INIT_ZERO:
        fill(out, n, 0.0F);
        break;
    case INIT_ONE:
        fill(out, n, 1.0F);
        break;
    case INIT_NORMAL:
        fill_normal(tensor, seed, std_normal, out, first, n);
        break;
    case INIT_NORMAL_RESIDUAL:
        fill_normal(tensor, seed, std_normal / sqrt(2.0 * layers), out, first, n);
        break;
    }
}

/* What [begin, end) and the `size` elements from `at` on have in common; true if
 * there is anything. */
static bool overlap(size_t begin, size_t end, size_t at, size_t size, size_t *ret_first,
                    size_t *ret_n)
{
    size_t first = MAX(begin, at);
    size_t last = MIN(end, at + size);
    *ret_first = first - at;
    *ret_n = last > first ? last - first : 0;
    return last > first;
}

/* The unit's tensors and the padding behind them, as far as they lie in [begin, end).
 */
static void init_unit(const struct unit *u, uint64_t seed, int layers, float *out,
                      size_t begin, size_t end)
{
    size_t at = u->offset;
    size_t first;
    size_t n;
    for (int j = 0; j < u->n_tensors; j++) {
        const struct tensor *t = &u->tensor[j];
        at = u->offset + t->offset;
        if (overlap(begin, end, at, t->size, &first, &n)) {
            init_tensor(t, seed, layers, out + (at + first - begin), first, n);
        }
        at += t->size;
    }
    if (overlap(begin, end, at, u->offset + u->size - at, &first, &n)) {
        memset(out + (at + first - begin), 0, n * sizeof(float));
    }
}

void init_range(const struct layout *layout, uint64_t seed, int layers, float *out,
                size_t begin, size_t end)
{
    for (int i = 0; i < layout->n_units; i++) {
        init_unit(&layout->unit[i], seed, layers, out, begin, end);
    }
}

void init_params(const struct layout *layout, uint64_t seed, int layers, float *params)
{
    init_range(layout, seed, layers, params, 0, layout->size);
}
