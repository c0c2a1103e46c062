#include "launcher/options/signals.h"

#include "common/check.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 32 };

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
           (signal_number < SIGNAME_FIRST_RT - 2 || signal_number >= SIGNAME_FIRST_RT);
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
    signame_format(signal_number, ret);
}

static void append(char *text, size_t size, const char *separator, const char *word)
{
    size_t len = strlen(text);

    (void)snprintf(text + len, size - len, "%s%s", len > 0 ? separator : "", word);
}

bool signals_add(struct signal_set *set, const char *word)
{
    int signal_number = signame_parse(word);
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
