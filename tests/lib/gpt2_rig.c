#include "tests/lib/gpt2_rig.h"

#include "worker/model/init.h"

#include <stdio.h>
#include <stdlib.h>

const struct gpt2_config gpt2_rig_small = {
    .model = {.family = "gpt2",
              .layers = 3,
              .heads = 2,
              .dim = 12,
              .context = 9,
              .vocab = 31},
    .batch = 2,
    .seq_len = 8,
};

static void must(int rc, const struct errmsg *msg)
{
    if (rc != 0) {
        (void)fprintf(stderr, "gpt2_rig: %s: %s\n", err_name(rc), msg->text);
        abort();
    }
}

size_t gpt2_rig_head_size(const struct gpt2_rig *r)
{
    return (size_t)r->config.model.vocab * (size_t)r->config.model.dim;
}

int gpt2_rig_rows(const struct gpt2_rig *r)
{
    return r->config.batch * r->config.seq_len;
}

static void *take(struct gpt2_rig *r, size_t bytes)
{
    void *p;
    must(device_alloc(r->device, bytes, &p), &(struct errmsg){"device_alloc"});
    return p;
}

bool gpt2_rig_open(struct gpt2_rig *r, const struct gpt2_config *config,
                   const char *isa, int threads)
{
    *r = (struct gpt2_rig){.config = *config};
    struct errmsg msg = {0};
    struct device_config device = {
        .local_world_size = 1, .threads = threads, .isa = isa};
    int rc = device_open("cpu", &device, &r->device, &msg);
    if (rc == ERR_UNSUPPORTED) {
        return false;
    }
    must(rc, &msg);
    must(layout_gpt2(&config->model, &r->layout, &msg), &msg);
    must(gpt2_new(config, &r->layout, r->device, &r->model, &msg), &msg);

    size_t rows = (size_t)gpt2_rig_rows(r);
    r->params = take(r, r->layout.size * sizeof(float));
    r->grads = take(r, r->layout.size * sizeof(float));
    r->grad_head = take(r, gpt2_rig_head_size(r) * sizeof(float));
    r->tokens = take(r, rows * sizeof(int32_t));
    r->targets = take(r, rows * sizeof(int32_t));
    r->logits = take(r, (size_t)config->model.vocab * sizeof(float));
    r->loss_sum = take(r, sizeof(double));
    return true;
}

void gpt2_rig_close(struct gpt2_rig *r)
{
    size_t rows = (size_t)gpt2_rig_rows(r);
    device_free(r->device, r->params, r->layout.size * sizeof(float));
    device_free(r->device, r->grads, r->layout.size * sizeof(float));
    device_free(r->device, r->grad_head, gpt2_rig_head_size(r) * sizeof(float));
    device_free(r->device, r->tokens, rows * sizeof(int32_t));
    device_free(r->device, r->targets, rows * sizeof(int32_t));
    device_free(r->device, r->logits, (size_t)r->config.model.vocab * sizeof(float));
    device_free(r->device, r->loss_sum, sizeof(double));
    gpt2_free(r->model);
    layout_release(&r->layout);
    device_close(r->device);
}

static void fill_tensor(struct gpt2_rig *r, const struct unit *u, struct tensor t,
                        uint64_t seed)
{
    float shift = t.init == INIT_ONE ? 1.0F : 0.0F;
    float *p = r->params + u->offset + t.offset;
    t.init = INIT_NORMAL;
    init_tensor(&t, seed, 1, p, 0, t.size);
    for (size_t i = 0; i < t.size; i++) {
        p[i] = p[i] * 5.0F + shift;
    }
}

void gpt2_rig_fill(struct gpt2_rig *r, uint64_t seed)
{
    for (int i = 0; i < r->layout.n_units; i++) {
        const struct unit *u = &r->layout.unit[i];
        for (int j = 0; j < u->n_tensors; j++) {
            fill_tensor(r, u, u->tensor[j], seed);
        }
    }
    uint64_t vocab = (uint64_t)r->config.model.vocab;
    uint64_t state = seed;
    for (int i = 0; i < gpt2_rig_rows(r); i++) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        r->tokens[i] = (int32_t)((state >> 33) % vocab);
        r->targets[i] = (int32_t)((state >> 20) % vocab);
    }
}

struct gpt2_leaf gpt2_rig_leaf(const struct gpt2_rig *r)
{
    return (struct gpt2_leaf){
        .tokens = r->tokens,
        .targets = r->targets,
        .params = {.flat = r->params},
        .grads = {.flat = r->grads},
        .grad_head = r->grad_head,
        .loss_scale = 1.0F / (float)gpt2_rig_rows(r),
        .loss_sum = r->loss_sum,
    };
}

double gpt2_rig_run(struct gpt2_rig *r)
{
    struct gpt2_leaf leaf = gpt2_rig_leaf(r);
    gpt2_forward_backward(r->model, &leaf);
    return *r->loss_sum / gpt2_rig_rows(r);
}

void gpt2_rig_tie(struct gpt2_rig *r)
{
    for (size_t i = 0; i < gpt2_rig_head_size(r); i++) {
        r->grads[i] += r->grad_head[i];
    }
}
