/* bf16 and fp16 as PyTorch casts (tests/torch/make_fixtures.py), bit by bit, on every
 * instruction set, queue and length. */

#include "tests/conformance/kernel_case.h"
#include "tests/lib/fixture.h"

#include "common/mem.h"

static const char *const isas[] = {"scalar", "avx512", "avx2"};
static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_FP16};

static uint32_t bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float of_bits(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* PyTorch keeps no NaN's sign or payload; that it is one is all that counts. */
static void expect_torchs(const char *isa, float x, float got, float want)
{
    bool is_same = isnan(want) ? isnan(got) : bits(got) == bits(want);

    if (!is_same) {
        fail_msg("%s: %a (%08x) becomes %a, PyTorch's %a", isa, x, bits(x), got, want);
    }
}

typedef void (*check_fn)(struct device *d, const char *isa, enum dtype dtype);

static void on_each_isa_and_dtype(check_fn check)
{
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        struct device *d = open_device(isas[i], 2);

        for (size_t t = 0; d && t < ARRAY_LEN(dtypes); t++) {
            check(d, isas[i], dtypes[t]);
        }
        device_close(d);
    }
}

static void check_against_torch(struct device *d, const char *isa, enum dtype dtype)
{
    size_t n = 0, n_want = 0;
    const float *x, *want;
    struct fixture f;
    float *got;

    fixture_open(&f, "tests/torch/fixtures/rounding.safetensors");
    x = fixture_f32(&f, "x", &n);
    want = fixture_f32(&f, dtype == DTYPE_BF16 ? "bf16" : "fp16", &n_want);
    assert_true(x && want && n > 10000 && n_want == n);
    got = mem_array(n, sizeof(*got));
    d->k->round(d, QUEUE_COMPUTE, got, x, n, dtype);
    for (size_t i = 0; i < n; i++) {
        expect_torchs(isa, x[i], got[i], want[i]);
    }
    mem_free(got);
    fixture_close(&f);
}

static void numbers_are_cast_as_pytorch_casts_them(void **state)
{
    (void)state;
    on_each_isa_and_dtype(check_against_torch);
}

/* NaNs' bits included: a NaN's are no number, but must not depend on the rank. */
static void check_against_scalar(struct device *d, const char *isa, enum dtype dtype)
{
    enum { N = 1 << 20, STEP = 4099 }; /* N · STEP > 2³² */
    static float x[N], got[N];
    uint32_t want;

    for (uint32_t i = 0; i < N; i++) {
        x[i] = of_bits(i * STEP);
    }
    d->k->round(d, QUEUE_COMPUTE, got, x, N, dtype);
    for (size_t i = 0; i < N; i++) {
        want = bits(dtype_round(x[i], dtype));
        if (bits(got[i]) != want) {
            fail_msg("%s: %08x becomes %08x, not %08x", isa, bits(x[i]), bits(got[i]),
                     want);
        }
    }
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    on_each_isa_and_dtype(check_against_scalar);
}

static void what_is_rounded_stays(void **state)
{
    (void)state;
    for (uint32_t u = 0; u < UINT32_C(1) << 16; u++) {
        float x = of_bits(u << 16), half = dtype_round(x, DTYPE_FP16);

        assert_true(bits(dtype_round(x, DTYPE_FP32)) == bits(x));
        assert_true(isnan(x) || bits(dtype_round(x, DTYPE_BF16)) == bits(x));
        assert_true(bits(dtype_round(half, DTYPE_FP16)) == bits(half));
    }
}

static void check_lengths(struct device *d, enum queue q)
{
    enum { MOST = 40 };
    float x[MOST + 1], got[MOST + 1];

    for (size_t n = 1; n <= MOST; n++) {
        for (size_t i = 0; i <= MOST; i++) {
            x[i] = got[i] = 1.0F + 0x1p-20F * (float)(i + 1);
        }
        d->k->round(d, q, got, x, n, DTYPE_BF16);
        d->k->round(d, q, x, x, n, DTYPE_BF16); /* in place */
        assert_int_equal(device_finish(d, device_mark(d, q), 60000, NULL), 0);
        for (size_t i = 0; i <= MOST; i++) {
            assert_true((got[i] == 1.0F) == (i < n));
            assert_true(got[i] == x[i]);
        }
    }
}

static void nothing_behind_the_end_is_touched_on_any_queue(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        struct device *d = open_device(isas[i], 1);

        if (d) {
            check_lengths(d, QUEUE_COMPUTE);
            check_lengths(d, QUEUE_GATHER);
            device_close(d);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_cast_as_pytorch_casts_them),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(what_is_rounded_stays),
        cmocka_unit_test(nothing_behind_the_end_is_touched_on_any_queue),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
