#include "launcher/options/signals.h"

#include "common/check.h"
#include "common/str.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    FIRST_RT = 34, /* the two below are the C library's */
    WORD_MAX = 32,
};

/* Nothing that says "stop": the kernel lets nobody handle the first two, the next are
 * our own faults, and PIPE and CHLD come by themselves. */
static const int impossible[] = {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS,  SIGILL, SIGFPE,
                                 SIGTRAP, SIGABRT, SIGSYS,  SIGPIPE, SIGCHLD};

static bool is_possible(int signal_number)
{
    for (size_t i = 0; i < ARRAY_LEN(impossible); i++) {
        if (impossible[i] == signal_number) {
            return false;
        }
    }
    return signal_number > 0 && signal_number <= SIGNALS_LAST &&
           (signal_number < FIRST_RT - 2 || signal_number >= FIRST_RT);
}

/* "RTMIN", "RTMIN+3", "RTMAX", "RTMAX-3"; -1: none of them. */
static int parse_real_time(const char *name)
{
    bool is_min = strncasecmp(name, "RTMIN", 5) == 0;
    uint64_t distance = 0;

    if ((!is_min && strncasecmp(name, "RTMAX", 5) != 0) ||
        (name[5] != '\0' &&
         (name[5] != (is_min ? '+' : '-') || str_parse_u64(name + 6, &distance) < 0)) ||
        distance > SIGNALS_LAST - FIRST_RT) {
        return -1;
    }
    return is_min ? FIRST_RT + (int)distance : SIGNALS_LAST - (int)distance;
}

/* -1: no such signal. */
static int parse_one(const char *word)
{
    const char *name = strncasecmp(word, "SIG", 3) == 0 ? word + 3 : word;
    uint64_t v;

    if (str_parse_u64(word, &v) == 0) {
        return v >= 1 && v <= SIGNALS_LAST ? (int)v : -1;
    }
    for (int i = 1; i < FIRST_RT; i++) {
        const char *known = sigabbrev_np(i);

        if (known && strcasecmp(known, name) == 0) {
            return i;
        }
    }
    if (strcasecmp(name, "IO") == 0) {
        return SIGIO; /* POLL's other name */
    }
    return parse_real_time(name);
}

static uint64_t bit_of(int signal_number)
{
    return UINT64_C(1) << (((unsigned)signal_number - 1) % SIGNALS_LAST);
}

bool signals_has(const struct signal_set *set, int signal_number)
{
    return (set->mask & bit_of(signal_number)) != 0;
}

bool signals_is_notice(int signal_number)
{
    return signal_number != SIGTERM && signal_number != SIGINT &&
           signal_number != SIGHUP && signal_number != SIGQUIT;
}

void signals_name(int signal_number, char ret[SIGNALS_NAME_MAX])
{
    const char *known = sigabbrev_np(signal_number);

    if (known) {
        (void)snprintf(ret, SIGNALS_NAME_MAX, "SIG%s", known);
    } else if (signal_number > FIRST_RT && signal_number <= SIGNALS_LAST) {
        (void)snprintf(ret, SIGNALS_NAME_MAX, "SIGRTMIN+%d", signal_number - FIRST_RT);
    } else if (signal_number == FIRST_RT) {
        (void)snprintf(ret, SIGNALS_NAME_MAX, "SIGRTMIN");
    } else {
        (void)snprintf(ret, SIGNALS_NAME_MAX, "signal %d", signal_number);
    }
}

static void append(char *text, size_t size, const char *separator, const char *word)
{
    size_t len = strlen(text);

    (void)snprintf(text + len, size - len, "%s%s", len > 0 ? separator : "", word);
}

bool signals_add(struct signal_set *set, const char *word)
{
    int signal_number = parse_one(word);
    char name[SIGNALS_NAME_MAX];

    if (!is_possible(signal_number)) {
        return false;
    }
    if (!signals_has(set, signal_number)) {
        signals_name(signal_number, name);
        append(set->text, sizeof(set->text), ",", name);
        set->mask |= bit_of(signal_number);
    }
    return true;
}

static void add(struct signal_set *set, const char *word)
{
    if (!signals_add(set, word)) {
        append(set->trouble, sizeof(set->trouble), ", ", word[0] != '\0' ? word : "''");
    }
}

static void explain(struct signal_set *set)
{
    char words[sizeof(set->trouble)];

    if (set->trouble[0] != '\0') {
        memcpy(words, set->trouble, sizeof(words));
        (void)snprintf(set->trouble, sizeof(set->trouble),
                       "--signals-to-handle: not known, or not to be handled, and left "
                       "out: %.160s",
                       words);
    }
}

void signals_parse(const char *list, struct signal_set *ret)
{
    *ret = (struct signal_set){0};
    for (;;) {
        size_t len = strcspn(list, ",");
        const char *from = list + strspn(list, " ");
        const char *to = list + len;
        char word[WORD_MAX];

        while (to > from && to[-1] == ' ') {
            to--;
        }
        (void)snprintf(word, sizeof(word), "%.*s", to > from ? (int)(to - from) : 0,
                       from); /* what is cut is no signal's name */
        add(ret, word);
        if (list[len] == '\0') {
            break;
        }
        list += len + 1;
    }
    explain(ret);
}
