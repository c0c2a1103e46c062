/* Memory that is there, and what is said where there is none. */

#include "tests/lib/child.h"
#include "tests/lib/cmocka.h"

#include "common/check.h"
#include "common/log.h"
#include "common/mem.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t absurd = SIZE_MAX / 4 - 7; /* more than any has, and whole eights */
static const size_t half = SIZE_MAX / 2 + 1;

/* The sanitizers' allocators are to fail as the system's does. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming) */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}
/* NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming) */
#endif

static void alloc(void)
{
    mem_free(mem_alloc(absurd));
}

static void zalloc(void)
{
    mem_free(mem_zalloc(absurd));
}

static void array(void)
{
    mem_free(mem_array(absurd / 8, 8));
}

static void grow(void)
{
    mem_free(mem_grow(mem_alloc(1), absurd / 8, 8));
}

static void dup_much(void)
{
    mem_free(mem_dup("", absurd));
}

static void array_overflows(void)
{
    mem_free(mem_array(half, 2));
}

static void grow_overflows(void)
{
    mem_free(mem_grow(NULL, half, 2));
}

/* What a process that dies by SIGABRT in `body` has said. */
static void last_words(void (*body)(void), char *ret, size_t size)
{
    FILE *file = tmpfile();
    pid_t pid;
    size_t n;
    int status;

    CHECK(file);
    pid = fork();
    if (pid == 0) {
        CHECK(dup2(fileno(file), STDERR_FILENO) == STDERR_FILENO);
        log_setup("t", "", LOG_LEVEL_INFO);
        log_trace("machine", "", "from", "to");
        body();
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    rewind(file);
    n = fread(ret, 1, size - 1, file);
    ret[n] = '\0';
    CHECK(fclose(file) == 0);
}

static void lack(void)
{
    void (*const bodies[])(void) = {alloc, zalloc, array, grow, dup_much};
    char expected[128];
    char text[4096];

    (void)snprintf(expected, sizeof(expected),
                   "t: error: out of memory (%zu bytes wanted): ", absurd);
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        const char *line;

        last_words(bodies[i], text, sizeof(text));
        line = strstr(text, expected); /* a sanitizer may have said something before */
        CHECK(line && strstr(line, "ulimit -v"));
        CHECK(strchr(line, '\n') == line + strlen(line) - 1);
        CHECK(!strstr(text, "bug"));
    }
}

static void a_lack_of_memory_is_told_in_one_line_and_is_no_bug(void **state)
{
    (void)state;
    child_run(lack);
}

static void overflow(void)
{
    char text[4096];

    last_words(array_overflows, text, sizeof(text));
    CHECK(strstr(text, "t: bug: common/mem.c:"));
    last_words(grow_overflows, text, sizeof(text));
    CHECK(strstr(text, "t: bug: common/mem.c:"));
}

static void a_size_that_overflows_is_a_bug(void **state)
{
    (void)state;
    child_run(overflow);
}

static void nothing_is_a_place_of_its_own(void **state)
{
    void *none[] = {mem_alloc(0), mem_zalloc(0), mem_array(0, 8), mem_array(8, 0),
                    mem_grow(NULL, 0, 8)};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        assert_non_null(none[i]);
    }
    none[0] = mem_grow(none[0], 0, 0);
    assert_non_null(none[0]);
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        mem_free(none[i]);
    }
}

static void a_text_is_as_long_as_it_has_to_be(void **state)
{
    char *empty = mem_printf("%s", "");
    char *text = mem_printf("%s-%05d", "a", 7);
    char *wide = mem_printf("%*d", 5000, 1);

    (void)state;
    assert_string_equal(empty, "");
    assert_string_equal(text, "a-00007");
    assert_int_equal(strlen(wide), 5000);
    mem_free(empty);
    mem_free(text);
    mem_free(wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lack_of_memory_is_told_in_one_line_and_is_no_bug),
        cmocka_unit_test(a_size_that_overflows_is_a_bug),
        cmocka_unit_test(nothing_is_a_place_of_its_own),
        cmocka_unit_test(a_text_is_as_long_as_it_has_to_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
