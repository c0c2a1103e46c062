#ifndef COMMON_SIGNAME_H
#define COMMON_SIGNAME_H

/* PURE. The names of signals, as people write and read them. */

enum {
    SIGNAME_LAST = 64,     /* the highest number there is */
    SIGNAME_FIRST_RT = 34, /* the two below are the C library's */
    SIGNAME_MAX = 24,
};

/* "SIGTERM", "SIGRTMIN+3"; "signal 33" for what has no name. */
void signame_format(int signal_number, char ret[SIGNAME_MAX]);

/* "TERM", "SIGTERM", "sigrtmin+3", "RTMAX-1", "15"; -1: there is no such signal. */
int signame_parse(const char *word);

#endif
