#include "launcher/place/cpuset.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/mem.h"

#include <ctype.h>
#include <string.h>

enum { TEXT_MAX = CPUSET_MAX * 6 }; /* more than every second CPU's number */

void cpuset_add(struct cpuset *set, unsigned cpu)
{
    ASSERT(cpu < CPUSET_MAX);
    set->word[cpu / 64] |= UINT64_C(1) << (cpu % 64);
}

bool cpuset_has(const struct cpuset *set, unsigned cpu)
{
    return cpu < CPUSET_MAX && (set->word[cpu / 64] >> (cpu % 64) & 1) != 0;
}

void cpuset_keep(struct cpuset *set, const struct cpuset *others)
{
    for (size_t i = 0; i < ARRAY_LEN(set->word); i++) {
        set->word[i] &= others->word[i];
    }
}

void cpuset_join(struct cpuset *set, const struct cpuset *others)
{
    for (size_t i = 0; i < ARRAY_LEN(set->word); i++) {
        set->word[i] |= others->word[i];
    }
}

unsigned cpuset_count(const struct cpuset *set)
{
    unsigned n = 0;

    for (size_t i = 0; i < ARRAY_LEN(set->word); i++) {
        n += (unsigned)__builtin_popcountll(set->word[i]);
    }
    return n;
}

bool cpuset_equal(const struct cpuset *a, const struct cpuset *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

int cpuset_next(const struct cpuset *set, int cpu)
{
    uint64_t mask;

    ASSERT(cpu >= 0);
    mask = ~UINT64_C(0) << (cpu % 64); /* of the first word */
    for (int i = cpu / 64; i < CPUSET_MAX / 64; i++) {
        uint64_t rest = set->word[i] & mask;

        if (rest != 0) {
            return i * 64 + __builtin_ctzll(rest);
        }
        mask = ~UINT64_C(0);
    }
    return -1;
}

/* The number at *at, which moves behind it; -1: none, or no CPU's. */
static int take_number(const char **at)
{
    int n = 0;

    if (!isdigit((unsigned char)**at)) {
        return -1;
    }
    for (; isdigit((unsigned char)**at) && n < CPUSET_MAX; (*at)++) {
        n = 10 * n + (**at - '0');
    }
    return n < CPUSET_MAX ? n : -1;
}

int cpuset_parse(const char *text, struct cpuset *ret)
{
    struct cpuset set = {{0}};
    const char *at = text;

    while (*at != '\0') {
        int first = take_number(&at);
        int last = first;

        if (*at == '-') {
            at++;
            last = take_number(&at);
        }
        if (first < 0 || last < first || (*at != '\0' && (*at != ',' || !at[1]))) {
            return ERR_INVALID;
        }
        for (int cpu = first; cpu <= last; cpu++) {
            cpuset_add(&set, (unsigned)cpu);
        }
        at += *at == ',';
    }
    *ret = set;
    return 0;
}

char *cpuset_format(const struct cpuset *set)
{
    struct buf text;
    char *copy;
    int rv = 0;

    buf_init(&text, TEXT_MAX);
    for (int first = cpuset_next(set, 0); first >= 0 && rv == 0;) {
        const char *comma = buf_len(&text) > 0 ? "," : "";
        int last = first;

        while (cpuset_has(set, (unsigned)last + 1)) {
            last++;
        }
        rv = last > first ? buf_printf(&text, "%s%d-%d", comma, first, last)
                          : buf_printf(&text, "%s%d", comma, first);
        first = cpuset_next(set, last + 1);
    }
    ASSERT(rv == 0); /* there is room for all */
    copy = mem_printf("%.*s", (int)buf_len(&text), (const char *)buf_bytes(&text));
    buf_release(&text);
    return copy;
}
