/* The model and the optimizer against real PyTorch (tests/torch/make_fixtures.py):
 * logits, loss, every gradient, ten AdamW steps; and how far bf16 and fp16 stray. On
 * every instruction set that this machine has.
 *
 *   CTRUN_FIXTURE=FILE   this fixture in place of the committed ones
 *   CTRUN_ISA=NAME       this instruction set alone */

#include "tests/lib/cmocka.h"
#include "tests/lib/fixture.h"
#include "tests/lib/gpt2_rig.h"
#include "worker/optim/adamw.h"

#include "common/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const double tolerance = 1e-4; /* relative to the norm of each tensor */

static char isas[][8] = {"scalar", "avx2", "avx512"};

static const char *const small[] = {
    "tests/torch/fixtures/odd.safetensors",
    "tests/torch/fixtures/tiny.safetensors",
    "tests/torch/fixtures/deep.safetensors",
    "tests/torch/fixtures/one-token.safetensors",
    "tests/torch/fixtures/dropout.safetensors",
    "tests/torch/fixtures/frozen.safetensors",
    "tests/torch/fixtures/frozen-head.safetensors",
};

struct check {
    struct fixture fixture;
    struct gpt2_rig rig;
    const char *isa;
    int steps;
};

static struct gpt2_config config_of(const struct fixture *f)
{
    struct gpt2_config config = {
        .model = {.family = "gpt2",
                  .layers = fixture_int(f, "layers"),
                  .heads = fixture_int(f, "heads"),
                  .dim = fixture_int(f, "dim"),
                  .context = fixture_int(f, "context"),
                  .vocab = fixture_int(f, "vocab")},
        .batch = fixture_int(f, "batch"),
        .seq_len = fixture_int(f, "seq_len"),
        .dropout = fixture_has(f, "dropout") ? fixture_number(f, "dropout") : 0,
        .seed = (uint64_t)fixture_number(f, "seed"),
    };
    return config;
}

static enum schedule schedule_of(const struct fixture *f)
{
    const char *kind = fixture_text(f, "schedule");
    if (strcmp(kind, "cosine") == 0) {
        return SCHEDULE_COSINE;
    }
    return strcmp(kind, "linear") == 0 ? SCHEDULE_LINEAR : SCHEDULE_CONSTANT;
}

static struct adamw_config adamw_of(const struct check *c)
{
    const struct fixture *f = &c->fixture;
    return (struct adamw_config){
        .layout = &c->rig.layout,
        .device = c->rig.device,
        .beta1 = fixture_number(f, "beta1"),
        .beta2 = fixture_number(f, "beta2"),
        .eps = fixture_number(f, "eps"),
        .weight_decay = fixture_number(f, "weight_decay"),
        .grad_clip = fixture_number(f, "grad_clip"),
        .schedule = {.kind = schedule_of(f),
                     .lr = fixture_number(f, "lr"),
                     .min_lr = fixture_number(f, "min_lr"),
                     .warmup = (uint64_t)fixture_int(f, "warmup"),
                     .steps = (uint64_t)fixture_int(f, "total_steps")},
    };
}

static void expect_near(const struct check *c, const char *what, const float *ours,
                        const float *theirs, size_t n)
{
    double distance = fixture_distance(ours, theirs, n);
    if (!(distance <= tolerance)) {
        fail_msg("%s, %s: %s is %.3g from PyTorch's, relative to its norm",
                 c->fixture.path, c->isa, what, distance);
    }
}

static void expect_number(const struct check *c, const char *what, int step,
                          double ours, double theirs)
{
    if (!(fabs(ours - theirs) <= tolerance * fabs(theirs))) {
        fail_msg("%s, %s, step %d: %s is %.9g, PyTorch's %.9g", c->fixture.path, c->isa,
                 step, what, ours, theirs);
    }
}

/* "<prefix><tensor><suffix>" of the fixture; it must be there. */
static const float *named(const struct check *c, const char *prefix,
                          const struct tensor *t, const char *suffix)
{
    char name[128];
    size_t n = 0;
    assert_true(str_format(name, sizeof(name), "%s%s%s", prefix, t->name, suffix));
    const float *data = fixture_f32(&c->fixture, name, &n);
    if (data == NULL || n != t->size) {
        fail_msg("%s: no %s of %zu elements", c->fixture.path, name, t->size);
    }
    return data;
}

/* The patterns of the fixture, with blanks between. */
static void freeze(struct check *c)
{
    char patterns[256] = "";
    char *rest = NULL;
    struct errmsg msg;
    if (fixture_has(&c->fixture, "freeze")) {
        (void)snprintf(patterns, sizeof(patterns), "%s",
                       fixture_text(&c->fixture, "freeze"));
    }
    for (const char *p = strtok_r(patterns, " ", &rest); p;
         p = strtok_r(NULL, " ", &rest)) {
        assert_int_equal(layout_freeze(&c->rig.layout, p, &msg), 0);
    }
}

static void load_params(struct check *c)
{
    for (int i = 0; i < c->rig.layout.n_units; i++) {
        const struct unit *u = &c->rig.layout.unit[i];
        for (int j = 0; j < u->n_tensors; j++) {
            const struct tensor *t = &u->tensor[j];
            memcpy(c->rig.params + u->offset + t->offset, named(c, "init.", t, ""),
                   t->size * sizeof(float));
        }
    }
}

static void load_batch(struct check *c, int step)
{
    size_t rows = (size_t)gpt2_rig_rows(&c->rig);
    size_t n = 0;
    size_t at = (size_t)(step - 1) * rows;
    memcpy(c->rig.tokens, fixture_i32(&c->fixture, "tokens", &n) + at,
           rows * sizeof(int32_t));
    assert_true(at + rows <= n);
    memcpy(c->rig.targets, fixture_i32(&c->fixture, "targets", &n) + at,
           rows * sizeof(int32_t));
}

/* `skip_key`: without the key third of the QKV bias, whose gradient is rounding noise
 * that Adam turns into ± lr. */
static void compare_tensor(const struct check *c, const struct tensor *t,
                           const float *ours, const float *theirs, bool skip_key)
{
    if (!skip_key || strstr(t->name, "attn.c_attn.bias") == NULL) {
        expect_near(c, t->name, ours, theirs, t->size);
        return;
    }
    size_t third = t->size / 3;
    expect_near(c, t->name, ours, theirs, third);
    expect_near(c, t->name, ours + 2 * third, theirs + 2 * third, third);
}

static void compare_block(const struct check *c, const float *block, const char *prefix,
                          const char *suffix, bool skip_key)
{
    for (int i = 0; i < c->rig.layout.n_units; i++) {
        const struct unit *u = &c->rig.layout.unit[i];
        for (int j = 0; j < u->n_tensors; j++) {
            const struct tensor *t = &u->tensor[j];
            compare_tensor(c, t, block + u->offset + t->offset,
                           named(c, prefix, t, suffix), skip_key);
        }
    }
}

/* To the bit, and without moments. */
static void expect_frozen(const struct check *c, struct adamw *adamw)
{
    static const float zeros[4096];
    for (int i = 0; i < c->rig.layout.n_units; i++) {
        const struct unit *u = &c->rig.layout.unit[i];
        for (int j = 0; j < u->n_tensors; j++) {
            const struct tensor *t = &u->tensor[j];
            size_t at = u->offset + t->offset;
            size_t bytes = t->size * sizeof(float);
            if (!t->frozen) {
                continue;
            }
            assert_true(bytes <= sizeof(zeros));
            assert_memory_equal(c->rig.params + at, named(c, "init.", t, ""), bytes);
            assert_memory_equal(c->rig.grads + at, zeros, bytes);
            assert_memory_equal(adamw_exp_avg(adamw) + at, zeros, bytes);
            assert_memory_equal(adamw_exp_avg_sq(adamw) + at, zeros, bytes);
        }
    }
}

/* Logits of sequence 0: all positions, or the first and last of a large model. */
static void compare_logits(struct check *c)
{
    size_t n = 0;
    const float *theirs = fixture_f32(&c->fixture, "logits", &n);
    int vocab = c->rig.config.model.vocab;
    int seq_len = c->rig.config.seq_len;
    assert_non_null(theirs);
    assert_int_equal(n, (size_t)gpt2_rig_rows(&c->rig) * (size_t)vocab);
    int stride = vocab > 1000 ? MAX(seq_len - 1, 1) : 1;
    for (int pos = 0; pos < seq_len; pos += stride) {
        gpt2_logits(c->rig.model, &(struct unit_params){.flat = c->rig.params},
                    c->rig.tokens, pos, c->rig.logits);
        expect_near(c, "a row of logits", c->rig.logits,
                    theirs + (size_t)pos * (size_t)vocab, (size_t)vocab);
    }
}

/* The batch of a step, at its place in the stream. Returns the mean loss. */
static double run_step(struct check *c, int step)
{
    struct gpt2_leaf leaf = gpt2_rig_leaf(&c->rig);
    leaf.position = (uint64_t)(step - 1) * (uint64_t)c->rig.config.batch;
    gpt2_forward_backward(c->rig.model, &leaf);
    return *c->rig.loss_sum / gpt2_rig_rows(&c->rig);
}

static void compare_first_step(struct check *c)
{
    size_t n = 0;
    load_params(c);
    load_batch(c, 1);
    compare_logits(c);
    double loss = run_step(c, 1);
    expect_number(c, "loss", 1, loss, fixture_f64(&c->fixture, "loss", &n)[0]);

    struct gpt2_leaf leaf = gpt2_rig_leaf(&c->rig);
    gpt2_forward_loss(c->rig.model, &leaf);
    bool is_same = *c->rig.loss_sum / gpt2_rig_rows(&c->rig) == loss;
    assert_int_equal(is_same, c->rig.config.dropout == 0);

    gpt2_rig_tie(&c->rig);
    compare_block(c, c->rig.grads, "grad.", "", false);
}

static void compare_steps(struct check *c)
{
    size_t n = 0;
    const double *losses = fixture_f64(&c->fixture, "loss", &n);
    const double *norms = fixture_f64(&c->fixture, "norm", &n);
    assert_int_equal(n, c->steps);
    struct adamw_config config = adamw_of(c);
    struct adamw *adamw;
    struct errmsg msg;
    assert_int_equal(adamw_new(&config, &adamw, &msg), 0);
    load_params(c);
    for (int step = 1; step <= c->steps; step++) {
        const double *norm;
        load_batch(c, step);
        expect_number(c, "loss", step, run_step(c, step), losses[step - 1]);
        gpt2_rig_tie(&c->rig);
        adamw_step(adamw, c->rig.params, c->rig.grads, adamw_turn_of((uint64_t)step),
                   &norm);
        expect_number(c, "grad_norm", step, *norm, norms[step - 1]);
    }
    compare_block(c, c->rig.params, "final.", "", true);
    expect_frozen(c, adamw);
    if (fixture_int(&c->fixture, "moments") != 0) {
        compare_block(c, adamw_exp_avg(adamw), "final.", ".exp_avg", true);
        compare_block(c, adamw_exp_avg_sq(adamw), "final.", ".exp_avg_sq", true);
    }
    adamw_free(adamw);
}

/* False when the machine lacks the instruction set. */
static bool compare(const char *path, const char *isa)
{
    struct check c = {.isa = isa};
    fixture_open(&c.fixture, path);
    struct gpt2_config config = config_of(&c.fixture);
    c.steps = fixture_int(&c.fixture, "steps");
    bool here = gpt2_rig_open(&c.rig, &config, isa, 2);
    if (here) {
        freeze(&c);
        compare_first_step(&c);
        if (c.steps > 1) {
            compare_steps(&c);
        }
        gpt2_rig_close(&c.rig);
    }
    fixture_close(&c.fixture);
    return here;
}

static void numbers_equal_pytorchs(void **state)
{
    const char *isa = *state;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it */
    const char *only = getenv("CTRUN_FIXTURE");
    if (only != NULL) {
        if (!compare(only, isa)) {
            skip();
        }
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(small); i++) {
        if (!compare(small[i], isa)) {
            assert_string_not_equal(isa, "scalar"); /* every machine has it */
            print_message("this processor has no %s\n", isa);
            return;
        }
    }
}

/* --- bf16 and fp16 --- */

static const char precision_path[] = "tests/torch/fixtures/bf16-and-fp16.safetensors";

/* The largest difference of two curves. */
static double distance(const double *x, const double *y, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) {
        most = fmax(most, fabs(x[i] - y[i]));
    }
    return most;
}

enum { POSITION = 7, STEPS_MAX = 64 };

/* Steps on one batch, from fp32 parameters that are cast for each; the first step's
 * logits of POSITION are left in the rig. */
static void train(struct check *c, double *losses)
{
    struct device *d = c->rig.device;
    enum dtype dtype = c->rig.config.precision;
    size_t n = c->rig.layout.size;
    struct adamw_config config = adamw_of(c);
    struct adamw *adamw;
    struct errmsg msg;
    void *cast;
    const double *norm;
    assert_int_equal(adamw_new(&config, &adamw, &msg), 0);
    assert_int_equal(device_alloc(d, n * sizeof(float), &cast), 0);
    load_params(c);
    load_batch(c, 1);
    for (int step = 1; step <= c->steps; step++) {
        struct gpt2_leaf leaf = gpt2_rig_leaf(&c->rig);
        leaf.params.flat = cast;
        d->k->round(d, QUEUE_COMPUTE, cast, c->rig.params, n, dtype);
        if (step == 1) {
            gpt2_logits(c->rig.model, &leaf.params, c->rig.tokens, POSITION,
                        c->rig.logits);
        }
        gpt2_forward_backward(c->rig.model, &leaf);
        losses[step - 1] = *c->rig.loss_sum / gpt2_rig_rows(&c->rig);
        gpt2_rig_tie(&c->rig);
        adamw_step(adamw, c->rig.params, c->rig.grads, adamw_turn_of((uint64_t)step),
                   &norm);
    }
    device_free(d, cast, n * sizeof(float));
    adamw_free(adamw);
}

/* Rounding moves a run away from fp32's. Ours by as much as PyTorch's: more would be an
 * error, much less a rounding that is left out. */
static void expect_astray(const struct check *c, const char *what, double ours,
                          double theirs)
{
    if (!(ours >= theirs / 8 && ours <= 2 * theirs + 1e-4)) {
        fail_msg("%s: %s are %.3g from fp32's, PyTorch's %.3g", c->isa, what, ours,
                 theirs);
    }
}

static void compare_logits_in(const struct check *c, const char *key)
{
    size_t n = 0, n_fp32 = 0, vocab = (size_t)c->rig.config.model.vocab;
    const float *theirs = fixture_f32(&c->fixture, key, &n);
    const float *fp32 = fixture_f32(&c->fixture, "logits", &n_fp32);
    size_t at = POSITION * vocab;
    assert_true(theirs && fp32 && n == n_fp32 && n >= at + vocab);
    expect_astray(c, key, fixture_distance(c->rig.logits, fp32 + at, vocab),
                  fixture_distance(theirs + at, fp32 + at, vocab));
}

static void compare_losses_in(struct check *c, const char *key)
{
    double ours[STEPS_MAX] = {0};
    size_t n = 0, n_fp32 = 0;
    const double *theirs = fixture_f64(&c->fixture, key, &n);
    const double *fp32 = fixture_f64(&c->fixture, "loss", &n_fp32);
    assert_true(n == (size_t)c->steps && n_fp32 == n && n <= ARRAY_LEN(ours));
    train(c, ours);
    expect_astray(c, key, distance(ours, fp32, c->steps),
                  distance(theirs, fp32, c->steps));
}

static void bf16_and_fp16_stray_as_far_as_pytorchs(void **state)
{
    static const char *const losses[] = {"loss.bf16", "loss.fp16"};
    static const char *const logits[] = {"logits.bf16", "logits.fp16"};
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_FP16};
    struct check c = {.isa = *state};
    fixture_open(&c.fixture, precision_path);
    struct gpt2_config config = config_of(&c.fixture);
    c.steps = fixture_int(&c.fixture, "steps");
    for (size_t i = 0; i < ARRAY_LEN(dtypes); i++) {
        config.precision = dtypes[i];
        if (gpt2_rig_open(&c.rig, &config, c.isa, 2)) {
            compare_losses_in(&c, losses[i]);
            compare_logits_in(&c, logits[i]);
            gpt2_rig_close(&c.rig);
        }
    }
    fixture_close(&c.fixture);
}

/* A process for each: oneDNN is told its instruction set once in a process. */
static int run(char *isa)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(numbers_equal_pytorchs, isa),
            cmocka_unit_test_prestate(bf16_and_fp16_stray_as_far_as_pytorchs, isa),
        };
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): the device's threads have ended */
        exit(cmocka_run_group_tests_name(isa, tests, NULL, NULL));
    }
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        return 1;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

int main(void)
{
    int failed = 0;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it */
    const char *only = getenv("CTRUN_ISA");
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (only == NULL || strcmp(only, isas[i]) == 0) {
            failed += run(isas[i]);
        }
    }
    return failed;
}
