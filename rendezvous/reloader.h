#ifndef RENDEZVOUS_RELOADER_H
#define RENDEZVOUS_RELOADER_H

/* SIGHUP: the configuration and the keys are read again. A thread reads (common/aside.h),
 * for their file system may hang: the service goes on with what it has, says so, and
 * takes over what comes when it comes. One thread at a time: who asks meanwhile is
 * answered by one more reading after it. The loop's thread. */

#include <stdint.h>

struct keyring;
struct reloader;
struct rendezvous_options;
struct uv_loop_s;

enum { RELOADER_LATE_MS = 5000 };

struct reloader_config {
    struct uv_loop_s *loop;
    int argc;                           /* the command line … */
    char *const *argv;                  /* … which stays where it is to the end */
    struct rendezvous_options *options; /* borrowed: what may change of them does */
    struct keyring *keyring;            /* borrowed, too */
    uint64_t late_ms; /* then the reading seems to hang: RELOADER_LATE_MS */
    void (*on_options)(void *arg); /* they were read again, and hold */
    void (*on_done)(void *arg);    /* nothing more is being read, whatever came of it */
    void *arg;
};

struct reloader *reloader_new(const struct reloader_config *config);

/* Reads both again. A configuration with a mistake changes nothing, keys with one stay as
 * they were: either is said. */
void reloader_ask(struct reloader *r);

/* We are ending: nothing is taken over any more, nor waited for; frees itself once its
 * handles are closed. */
void reloader_stop(struct reloader *r);

#endif
