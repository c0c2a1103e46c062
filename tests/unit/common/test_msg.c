/* The agent protocol's version and its fields belong together. */

#include "tests/lib/cmocka.h"

#include "common/err.h"
#include "common/msg.h"
#include "common/str.h"

#include <inttypes.h>

/* What the wire shows of every message: names, order, widths, limits. */
struct field {
    const char *name;
    char kind;
    unsigned size;
};

#define U(bits, name) {#name, 'U', bits},
#define I(name)       {#name, 'I', 32},
#define T(size, name) {#name, 'T', size},
#define B(name)       {#name, 'B', 0},
#define MESSAGE(NAME, name, number) \
    {#name, '=', number}, MSG_##NAME##_FIELDS(U, I, T, B)
static const struct field fields[] = {MSG_MAP(MESSAGE)};

static uint64_t fnv1a(uint64_t hash, const char *text)
{
    for (; *text; text++) {
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static void a_change_of_the_fields_is_a_new_version(void **state)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char text[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        assert_true(str_format(text, sizeof(text), "%c%u %s;", fields[i].kind,
                               fields[i].size, fields[i].name));
        hash = fnv1a(hash, text);
    }
    if (MSG_VERSION != 8 || hash != UINT64_C(0x3419d06dd5577026)) {
        fail_msg("the agent protocol has changed: raise MSG_VERSION, and put it here "
                 "with 0x%016" PRIx64,
                 hash);
    }
}

/* An agent of a later ctrun, whose HELLO has more fields. */
static void of_a_hello_of_another_version_the_version_is_read(void **state)
{
    struct msg m = {.type = MSG_HELLO, .u.hello = {.version = MSG_VERSION, .job = "j"}};
    struct buf b;
    uint8_t *frame;
    size_t size;

    (void)state;
    buf_init(&b, MSG_MAX_FRAME);
    assert_int_equal(msg_encode(&m, &b), 0);
    assert_int_equal(buf_append(&b, "more", 4), 0);
    frame = b.data + b.start;
    size = buf_len(&b);
    frame[0] = (uint8_t)(frame[0] + 4);
    assert_int_equal(msg_decode(frame, size, &m),
                     ERR_PROTOCOL); /* of ours it is wrong */
    frame[5] = MSG_VERSION + 1;
    assert_int_equal(msg_decode(frame, size, &m), size);
    assert_int_equal(m.u.hello.version, MSG_VERSION + 1);
    assert_string_equal(m.u.hello.job, "");
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_of_the_fields_is_a_new_version),
        cmocka_unit_test(of_a_hello_of_another_version_the_version_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
