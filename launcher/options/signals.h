#ifndef LAUNCHER_OPTIONS_SIGNALS_H
#define LAUNCHER_OPTIONS_SIGNALS_H

/* PURE. The signals that stop the job: --signals-to-handle, names (TERM, SIGTERM,
 * RTMIN+3) and numbers with commas between. As with torchrun the list takes the place
 * of the default, and a word in it that cannot be is told, not refused. */

#include "common/signame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIGNALS_DEFAULT "SIGTERM,SIGINT,SIGHUP,SIGQUIT"

enum {
    SIGNALS_LAST = SIGNAME_LAST,
    SIGNALS_TEXT_MAX = 1024, /* every signal there is, by name */
    SIGNALS_NAME_MAX = SIGNAME_MAX,
};

struct signal_set {
    uint64_t mask;               /* bit N - 1: signal N */
    char text[SIGNALS_TEXT_MAX]; /* the same as a list of names, in the order given */
    char trouble[256];           /* one line about what of it cannot be; "": nothing */
};

void signals_parse(const char *list, struct signal_set *ret);
/* One more; false when there is no such signal, or it cannot be handled. */
bool signals_add(struct signal_set *set, const char *word);
bool signals_has(const struct signal_set *set, int signal_number);

/* A scheduler's word that the end is near (USR1 …), not the end itself: none of the
 * default's four. */
bool signals_is_notice(int signal_number);

/* As signame_format. */
void signals_name(int signal_number, char ret[SIGNALS_NAME_MAX]);

#endif
