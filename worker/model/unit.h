#ifndef WORKER_MODEL_UNIT_H
#define WORKER_MODEL_UNIT_H

/* PURE. The flat parameter blocks of a model.
 *
 * A unit is one flat fp32 block per layer group (embedding, each transformer block,
 * head) with a table of its tensors. It is at once the bucket source of DDP, the unit
 * of FSDP, the atom of a pipeline and the entry of a checkpoint. Parameters, gradients,
 * exp_avg and exp_avg_sq of a unit are four blocks of the same layout.
 *
 * Tensor names, shapes and orientation are Hugging Face's ("h.0.attn.c_attn.weight" is
 * [in, out]). A unit's size is padded with zeros to a multiple of SUMSQ_CHUNK elements,
 * so that shards and the chunks of the gradient norm never cross it. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_init { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_NORMAL_RESIDUAL };

struct tensor {
    char name[64];
    size_t shape[2];
    int n_dims;    /* 1 or 2 */
    size_t offset; /* elements, from the unit's begin */
    size_t size;   /* elements */
    bool decay;    /* weight decay: two or more dimensions */
    bool frozen;   /* not trained: layout_freeze */
    enum tensor_init init;
};

enum { UNIT_MAX_TENSORS = 16 };

/* What is kept of a tensor: its parameters, exp_avg, exp_avg_sq; a checkpoint has each
 * by the tensor's name with this behind it. */
enum { UNIT_STATES = 3 };
extern const char *const unit_state_suffix[UNIT_STATES];

struct unit {
    char name[32];
    struct tensor tensor[UNIT_MAX_TENSORS];
    int n_tensors;
    size_t offset; /* elements, from the begin of the whole flat block */
    size_t size;   /* elements, padded */
};

struct layout {
    struct unit *unit; /* owned; in forward order: embedding, blocks, head */
    int n_units;
    size_t size;       /* elements of the whole flat block, padding included */
    size_t n_params;   /* without padding */
    size_t n_frozen;   /* of them */
    int first_trained; /* unit: those before it are frozen; n_units: all are */
};

struct model_config {
    char family[16]; /* "gpt2" */
    int layers, heads, dim, context, vocab;
};

/* GPT-2: unit 0 = wte, wpe; units 1…L = blocks; unit L+1 = ln_f. The head is tied to
 * wte. */
int layout_gpt2(const struct model_config *config, struct layout *ret,
                struct errmsg *msg) MUST_CHECK;
void layout_release(struct layout *l);

/* Freezes the tensors whose names match the pattern (fnmatch(3), where * stands for dots,
 * too). ERR_INVALID where none does, with the nearest name. */
int layout_freeze(struct layout *l, const char *pattern, struct errmsg *msg) MUST_CHECK;

/* The unit and tensor of a name, or NULL. */
const struct tensor *layout_find(const struct layout *l, const char *name,
                                 const struct unit **ret_unit);

#endif
