#ifndef LAUNCHER_KEEPER_KEEPER_WATCH_H
#define LAUNCHER_KEEPER_KEEPER_WATCH_H

/* PURE. A keeper that is stopped (SIGSTOP, a debugger) neither kills nor tells of the
 * dead: the job could not be ended but by kill -9. The agent asks it for a sign of life
 * every KEEPER_WATCH_MS and does what this says when none comes: lets it run again, and
 * if that does not help kills it, which ends this node as if the keeper had died alone.
 * One that is not stopped is held up, by the kernel or for want of a processor: it will
 * answer, and there is nothing to be done but to say so. */

enum { KEEPER_WATCH_MS = 1000 };

struct keeper_watch {
    unsigned n_asked;   /* since its last sign of life */
    unsigned n_stopped; /* how often in a row it was found stopped then */
};

enum keeper_deed { KEEPER_LEAVE, KEEPER_CONTINUE, KEEPER_KILL, KEEPER_TELL };

void keeper_watch_answered(struct keeper_watch *w);

/* It is about to be asked, or asked again. `state`: its letter in /proc/PID/stat. */
enum keeper_deed keeper_watch_ask(struct keeper_watch *w, char state);

#endif
