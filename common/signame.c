#include "common/signame.h"

#include "common/str.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

void signame_format(int signal_number, char ret[SIGNAME_MAX])
{
    const char *known = sigabbrev_np(signal_number);

    if (known) {
        (void)snprintf(ret, SIGNAME_MAX, "SIG%s", known);
    } else if (signal_number > SIGNAME_FIRST_RT && signal_number <= SIGNAME_LAST) {
        (void)snprintf(ret, SIGNAME_MAX, "SIGRTMIN+%d",
                       signal_number - SIGNAME_FIRST_RT);
    } else if (signal_number == SIGNAME_FIRST_RT) {
        (void)snprintf(ret, SIGNAME_MAX, "SIGRTMIN");
    } else {
        (void)snprintf(ret, SIGNAME_MAX, "signal %d", signal_number);
    }
}

/* "RTMIN", "RTMIN+3", "RTMAX", "RTMAX-3"; -1: none of them. */
static int parse_real_time(const char *name)
{
    bool is_min = strncasecmp(name, "RTMIN", 5) == 0;
    uint64_t distance = 0;

    if ((!is_min && strncasecmp(name, "RTMAX", 5) != 0) ||
        (name[5] != '\0' &&
         (name[5] != (is_min ? '+' : '-') || str_parse_u64(name + 6, &distance) < 0)) ||
        distance > SIGNAME_LAST - SIGNAME_FIRST_RT) {
        return -1;
    }
    return is_min ? SIGNAME_FIRST_RT + (int)distance : SIGNAME_LAST - (int)distance;
}

int signame_parse(const char *word)
{
    const char *name = strncasecmp(word, "SIG", 3) == 0 ? word + 3 : word;
    uint64_t v;

    if (str_parse_u64(word, &v) == 0) {
        return v >= 1 && v <= SIGNAME_LAST ? (int)v : -1;
    }
    for (int i = 1; i < SIGNAME_FIRST_RT; i++) {
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
