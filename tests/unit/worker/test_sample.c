#include "tests/lib/cmocka.h"
#include "worker/model/sample.h"

#include "common/err.h"

#include <math.h>
#include <string.h>

static void temperature_0_takes_the_likeliest(void **state)
{
    (void)state;
    const float logits[] = {1, 5, 3, 5};
    struct sample_config config = {.temperature = 0, .seed = 1};
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(sample_token(&config, logits, 4, i),
                         1); /* the lower of equals */
    }
}

static void shares_are_those_of_softmax(void **state)
{
    (void)state;
    /* at temperature 0.5: weights 1, e^2, e^4, with e^-inf last */
    const float logits[] = {0, 1, 2, -INFINITY};
    struct sample_config config = {.temperature = 0.5, .seed = 2};
    double total = 1 + exp(2) + exp(4);
    const double share[] = {1 / total, exp(2) / total, exp(4) / total, 0};
    int count[4] = {0};
    enum { N = 40000 };
    for (uint64_t i = 0; i < N; i++) {
        count[sample_token(&config, logits, 4, i)]++;
    }
    for (int i = 0; i < 4; i++) { /* five standard deviations; the seed is fixed */
        double margin = 5 * sqrt(N * share[i] * (1 - share[i]));
        assert_true(fabs(count[i] - N * share[i]) <= margin);
    }
}

static void only_the_k_likeliest_are_drawn(void **state)
{
    (void)state;
    const float logits[] = {0.1F, 0.4F, 0.2F, 0.3F, 0.3F};
    struct sample_config config = {.temperature = 10, .top_k = 2, .seed = 3};
    int count[5] = {0};
    for (uint64_t i = 0; i < 2000; i++) {
        count[sample_token(&config, logits, 5, i)]++;
    }
    assert_true(count[1] > 500 && count[3] > 500); /* of equals the lower token */
    assert_int_equal(count[1] + count[3], 2000);
    config.top_k = 99; /* more than there are: all */
    memset(count, 0, sizeof(count));
    for (uint64_t i = 0; i < 2000; i++) {
        count[sample_token(&config, logits, 5, i)]++;
    }
    for (int i = 0; i < 5; i++) {
        assert_true(count[i] > 200);
    }
}

static void seed_and_position_decide(void **state)
{
    (void)state;
    float logits[64] = {0};
    struct sample_config a = {.temperature = 1, .seed = 4};
    struct sample_config b = {.temperature = 1, .seed = 5};
    int differ = 0;
    for (uint64_t i = 0; i < 64; i++) {
        int32_t token = sample_token(&a, logits, 64, i);
        assert_int_equal(token, sample_token(&a, logits, 64, i));
        differ += token != sample_token(&b, logits, 64, i);
    }
    assert_true(differ > 48);
}

static void logits_that_are_no_numbers_do_no_harm(void **state)
{
    (void)state;
    const float some[] = {NAN, 1, NAN};
    const float none[] = {NAN, NAN};
    const float infinite[] = {0, INFINITY};
    struct sample_config config = {.temperature = 1, .seed = 6};
    for (uint64_t i = 0; i < 20; i++) {
        assert_int_equal(sample_token(&config, some, 3, i), 1);
        assert_int_equal(sample_token(&config, none, 2, i), 0);
        assert_int_equal(sample_token(&config, infinite, 2, i), 1);
    }
}

static void expect_text(const char *bytes, const char *expected)
{
    int32_t tokens[64];
    size_t n = strlen(bytes);
    struct buf b;
    assert_true(n <= ARRAY_LEN(tokens));
    for (size_t i = 0; i < n; i++) {
        tokens[i] = (unsigned char)bytes[i];
    }
    buf_init(&b, 4096);
    assert_int_equal(sample_text(tokens, n, &b), 0);
    assert_int_equal(buf_len(&b), strlen(expected));
    if (n > 0) {
        assert_memory_equal(buf_bytes(&b), expected, buf_len(&b));
    }
    buf_release(&b);
}

static void text_harms_no_terminal(void **state)
{
    (void)state;
    expect_text("", "");
    expect_text("int x;\n\treturn ~0;", "int x;\n\treturn ~0;");
    expect_text("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80",
                "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
    expect_text("\x1b[2J\r\x7f", "\\x1b[2J\\x0d\\x7f");
    expect_text("\xC2\x9B", "\\xc2\\x9b");          /* C1: an escape sequence */
    expect_text("\xE2\x80\xAE", "\\xe2\\x80\\xae"); /* turns the line round */
    expect_text("\xC0\xAF", "\\xc0\\xaf");          /* too long a spelling */
    expect_text("\xE0\x80\xAF", "\\xe0\\x80\\xaf");
    expect_text("\xED\xA0\x80", "\\xed\\xa0\\x80"); /* half of a surrogate pair */
    expect_text("\xF4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
    expect_text("a\xE2\x82", "a\\xe2\\x82"); /* cut off */
    expect_text("\x80\xC3z", "\\x80\\xc3z");
}

static void tokens_that_are_no_bytes_are_escaped(void **state)
{
    (void)state;
    const int32_t tokens[] = {'a', 256, 50256, -1};
    struct buf b;
    buf_init(&b, 64);
    assert_int_equal(sample_text(tokens, 4, &b), 0);
    static const char expected[] = "a\\x100\\xc450\\xffffffff";
    assert_int_equal(buf_len(&b), strlen(expected));
    assert_memory_equal(buf_bytes(&b), expected, buf_len(&b));
    buf_release(&b);
}

static void text_that_is_too_long_is_refused(void **state)
{
    (void)state;
    const int32_t tokens[] = {'a', 'b', 'c', 'd'};
    struct buf b;
    buf_init(&b, 3);
    assert_int_equal(sample_text(tokens, 4, &b), ERR_TOO_LARGE);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_0_takes_the_likeliest),
        cmocka_unit_test(shares_are_those_of_softmax),
        cmocka_unit_test(only_the_k_likeliest_are_drawn),
        cmocka_unit_test(seed_and_position_decide),
        cmocka_unit_test(logits_that_are_no_numbers_do_no_harm),
        cmocka_unit_test(text_harms_no_terminal),
        cmocka_unit_test(tokens_that_are_no_bytes_are_escaped),
        cmocka_unit_test(text_that_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
