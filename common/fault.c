#include "common/fault.h"

/* A handful of armed points under one lock: a passage costs a few string compares, in
 * test builds only. The environment is read once, at the first passage. */

#ifdef FAULTS

#include "common/check.h"
#include "common/str.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAULT_MAX = 16, FAULT_NAME_MAX = 32 };

struct fault_point {
    char name[FAULT_NAME_MAX];
    unsigned left; /* passages until it fails; 0: free */
    int err;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct fault_point points[FAULT_MAX]; /* under `lock` */

static void arm(const char *name, unsigned n, int err)
{
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        if (points[i].left == 0) {
            ASSERT(n > 0);
            ASSERT(str_format(points[i].name, sizeof(points[i].name), "%s", name));
            points[i].left = n;
            points[i].err = err;
            return;
        }
    }
    UNREACHABLE(); /* a test arms more points than there are */
}

/* A test that runs without the fault it asked for would pass for the wrong reason. */
static _Noreturn void refuse(const char *text)
{
    (void)fprintf(stderr, "CTRUN_FAULT: cannot understand '%s', want name:n[:errno]\n",
                  text);
    abort();
}

static int parse_error(const char *word)
{
    if (strcmp(word, "kill") == 0) {
        return FAULT_KILL;
    }
    if (strcmp(word, "spin") == 0) {
        return FAULT_SPIN;
    }
    for (int e = 1; e < 134; e++) { /* the range of Linux' errno */
        const char *name = strerrorname_np(e);

        if (name && strcmp(name, word) == 0) {
            return -e;
        }
    }
    refuse(word);
}

static void arm_text(char *text)
{
    char *count = strchr(text, ':');
    char *word = count ? strchr(count + 1, ':') : NULL;
    uint64_t n = 0;

    if (!count) {
        refuse(text);
    }
    *count++ = '\0';
    if (word) {
        *word++ = '\0';
    }
    if (str_parse_u64(count, &n) < 0 || n == 0 || n > 1000000000) {
        refuse(count);
    }
    arm(text, (unsigned)n, word ? parse_error(word) : -EIO);
}

static void on_first_passage(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here ever calls setenv */
    const char *env = getenv("CTRUN_FAULT");
    char text[256];
    char *rest = text;

    if (!env || env[0] == '\0') {
        return;
    }
    if (!str_format(text, sizeof(text), "%s", env)) {
        refuse(env);
    }
    while (rest) {
        arm_text(strsep(&rest, ","));
    }
}

static void setup(void)
{
    ASSERT(pthread_once(&once, on_first_passage) == 0);
    ASSERT(pthread_mutex_lock(&lock) == 0);
}

int fault_at(const char *name)
{
    int err = 0;

    setup();
    for (size_t i = 0; i < ARRAY_LEN(points); i++) {
        if (points[i].left > 0 && strcmp(points[i].name, name) == 0) {
            err = --points[i].left == 0 ? points[i].err : err;
        }
    }
    ASSERT(pthread_mutex_unlock(&lock) == 0);
    if (err == FAULT_KILL) {
        (void)raise(SIGKILL);
    }
    for (volatile unsigned n = 0; err == FAULT_SPIN; n++) {
    }
    return err;
}

void fault_arm(const char *name, unsigned n, int err)
{
    setup();
    arm(name, n, err);
    ASSERT(pthread_mutex_unlock(&lock) == 0);
}

void fault_disarm_all(void)
{
    setup();
    memset(points, 0, sizeof(points));
    ASSERT(pthread_mutex_unlock(&lock) == 0);
}

#else

typedef int fault_is_off; /* ISO C wants a declaration in every file */

#endif
