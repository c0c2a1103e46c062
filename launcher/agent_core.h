#ifndef LAUNCHER_AGENT_CORE_H
#define LAUNCHER_AGENT_CORE_H

/* PURE. What the agent's files share and nobody else sees: agent.c (its life: state ×
 * event), agent_link.c (the connection), agent_leaving.c (this node goes), agent_notice.c
 * (what people are told while it waits), agent_workers.c (the workers of one
 * generation), agent_progress.c (what they report), agent_inspect.c (what the service
 * asks about them). */

#include "launcher/agent.h"

enum {
    AGENT_MAX_REQUESTS = 4,
    AGENT_MAX_PAST = 64, /* generations before this one */
    /* After a failure, at most; else config.shutdown_ms alone. */
    AGENT_GRACE_ENGINE_MS = 5000, /* has nothing to save then */
    AGENT_GRACE_FAILED_MS = 30000,
};

/* Which ranks were ours in a generation that is over. */
struct agent_past {
    uint64_t generation;
    uint32_t first_rank;
};

enum agent_link { LINK_DOWN, LINK_OPENING, LINK_HELLO, LINK_UP };

enum agent_timer {
    TIMER_RECONNECT,
    TIMER_HELLO,     /* no WELCOME */
    TIMER_HEARTBEAT, /* send the next one */
    TIMER_NOTICE,    /* say for what it waits, and for whom */
    TIMER_PATIENCE,  /* give up */
    TIMER_COUNT,
};

enum agent_event {
    EVENT_ATTACHED,    /* WELCOME with the session we had */
    EVENT_NEW_SESSION, /* WELCOME with another: the old generation is over */
    EVENT_GONE,        /* the connection to an ephemeral server has ended */
    EVENT_ROUND,
    EVENT_STOP,
    EVENT_CLOSED, /* CLOSED or REFUSED: agent.closing is set */
    EVENT_FAILED, /* a worker (the detail) ended by itself, and not well */
    EVENT_EMPTY,  /* the last worker is gone */
    EVENT_SIGNAL,
    EVENT_GIVE_UP, /* TIMER_PATIENCE */
    EVENT_COUNT,
};

/* The last that a worker said of its progress. */
struct report {
    uint64_t said_ms; /* 0: nothing yet */
    uint64_t sent_ms; /* 0: nothing was */
    bool is_unsent;
    bool has_news;             /* … of another place, loss; else only said again */
    uint32_t tok_s, waits_for; /* as in struct control */
    char phase[CONTROL_PHASE_MAX], loss[CONTROL_PHASE_MAX];
    uint64_t loss_step;
};

enum worker_state { WORKER_NONE, WORKER_LIVE, WORKER_EXITED, WORKER_ENDED };

struct worker {
    enum worker_state state;
    bool is_engine;
    bool is_told;    /* to stop */
    bool has_failed; /* … but has ended by itself, or by another's hand */
    bool is_aborted; /* told the harder way */
    bool is_killed;
    int code, signal; /* how it ended */
    uint32_t pid;
    uint64_t started_ms;
    uint64_t told_ms; /* when it was first told to stop */
    uint64_t kill_ms; /* KILL then; 0: never */
    uint64_t step;    /* the last it reported */
    struct report report;
    uint64_t ended_ms;
    struct msg *ended; /* owned; RANK_ENDED, kept to be sent again after a reconnect */
};

/* A RESUMED or COMMIT without its DECISION. */
struct request {
    uint64_t id; /* 0: free */
    uint32_t slot;
    bool is_commit;
    uint32_t run;
    uint64_t step;
    char hash[CONTROL_HASH_MAX];
};

struct agent {
    struct agent_config config;
    enum agent_state state;
    uint64_t now_ms;
    uint64_t timer[TIMER_COUNT]; /* 0: not armed */
    uint64_t notice_ms;          /* from this notice to the next */
    int closing;                 /* exit code once all is stopped, -1: none */
    int leaving;                 /* signal that told us to go, 0: none */
    bool was_warned;             /* … which was a notice, or the service's word */
    bool is_drained;             /* the service's word: ends with 0 */
    uint64_t told_ms;            /* since then, on the service's clock; 0: not known */
    uint64_t leave_by_ms;        /* until then we wait for a service that is away */
    bool was_closed;             /* CLOSED has come */

    /* agent_link.c */
    enum agent_link link;
    unsigned attempts;  /* since the connection was last up */
    unsigned strangers; /* ended without WELCOME, while another held our port */
    uint64_t rng;
    uint64_t session, cluster;
    uint64_t boot, start; /* of the service; its state's, 0: it has none */
    uint64_t kept;        /* transactions of that, the most heard of */
    bool is_ephemeral;
    uint32_t lease_ms;
    unsigned n_unanswered; /* heartbeats since it was heard last */
    bool is_silent;        /* … which was said */
    uint64_t clock_offset; /* service - ours, from the quickest round trip; may wrap */
    uint64_t clock_trip_ms, clock_sample_ms;
    char trouble[512]; /* the last failure to connect, for people */
    char refusal[512]; /* the last that was said since the connection was up; "" */
    unsigned refusals; /* in a row, for that reason */
    char taken[256];
    uint64_t taken_ms; /* since when nobody answers on our port, that another holds */

    /* the generation */
    uint64_t generation; /* the highest seen */
    bool is_over;        /* the service knows nothing of it any more */
    bool is_standby;
    uint32_t n_joined;             /* nodes that wait, as the service said last */
    char also_waiting[MSG_ID_MAX]; /* another job there that waits; "": none */
    uint32_t failures;
    int32_t group_rank;
    uint32_t first_rank;
    struct agent_past past[AGENT_MAX_PAST]; /* … and of those before: a ring … */
    size_t n_past;                          /* … and how many there were */
    uint32_t commit_run;
    uint64_t commit_step;
    char commit_hash[MSG_HASH_MAX];
    uint64_t reported;      /* the generation whose report was shown … */
    bool was_final;         /* … as the job's last */
    char why[MSG_TEXT_MAX]; /* STOP's text, until a report has told it; "" */
    bool has_stopped;       /* STOPPED was sent for it */
    bool was_done;
    struct agent_relay relay; /* for the next */

    /* agent_workers.c */
    struct worker *workers; /* owned; config.nproc */
    uint32_t max_world;     /* from hello, or a refusal */
    uint64_t last_request;
    struct request requests[AGENT_MAX_REQUESTS];
    bool has_refused;
    struct msg_refuse refuse; /* sent again after a reconnect */
};

/* agent.c */
void agent_fire(struct agent *a, enum agent_event event, const void *detail);
void agent_finish(struct agent *a, int exit_code);
void agent_say(struct agent *a, enum log_level level, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* Tells the workers to go, each in its way. */
void agent_stop(struct agent *a, enum stop_mode mode, int signal);
void agent_arm(struct agent *a, enum agent_timer timer, uint64_t delay_ms);
void agent_disarm(struct agent *a, enum agent_timer timer);

/* agent_leaving.c; the first four answer EVENT_SIGNAL */
void leaving_now(struct agent *a, const void *detail);       /* without workers */
void leaving_begin(struct agent *a, const void *detail);     /* with them */
void leaving_again(struct agent *a, const void *detail);     /* they go already */
void leaving_impatient(struct agent *a, const void *detail); /* they are gone */
/* Without workers: there is a service, and it does not know yet that we go. */
bool leaving_has_to_wait(const struct agent *a);
void leaving_wait(struct agent *a);
void leaving_give_up(struct agent *a, const void *detail);
void leaving_tell(struct agent *a, uint64_t generation); /* the service */
void leaving_date(struct agent *a); /* once the service's clock is known */
int leaving_exit_code(const struct agent *a);
void leaving_say_cancelled(struct agent *a, const char *why); /* the whole job */
/* The service's word to go: as after a notice, but the end is 0. */
void agent_drain(struct agent *a, const char *why);

/* agent_link.c */
void link_open(struct agent *a);
void agent_send(struct agent *a, const struct msg *m); /* dropped while not up */
void link_tick(struct agent *a, enum agent_timer timer);
uint64_t link_service_ms(const struct agent *a, uint64_t ours_ms);

/* agent_notice.c */
void notice_begin(struct agent *a); /* in the state that it is about */
void notice_tick(struct agent *a);
void notice_tell(struct agent *a, const struct msg_notice *m); /* the service's */
/* The workers go on without the service, for `what`. */
void notice_alone(struct agent *a, const char *what);
void notice_silence(struct agent *a); /* a heartbeat is due: are the last unanswered? */
void notice_heard(struct agent *a);
void notice_answers(struct agent *a); /* again */
/* Why there is no connection. */
void notice_describe_trouble(const struct agent *a, char *ret, size_t size);

/* agent_inspect.c */
void inspect_begin(struct agent *a, const struct msg_inspect *m);
void inspect_note_past(struct agent *a); /* before the next generation */

/* agent_progress.c */
void progress_take(struct agent *a, uint32_t slot, const struct control *c);
void progress_send(struct agent *a, uint32_t slot); /* the last, again */
void progress_tick(struct agent *a, uint32_t slot);
uint64_t progress_deadline(const struct worker *w);
/* What is not told yet, at once: of one, of all. */
void progress_flush(struct agent *a, uint32_t slot);
void progress_hurry(struct agent *a);

/* agent_workers.c */
int workers_start(struct agent *a, const struct msg_round *m) MUST_CHECK;
/* Tells each live worker to go; `signal` is for those that are no engine. */
void workers_stop(struct agent *a, enum stop_mode mode, int signal);
/* Once more, another signal, and the full time from here on; for those that are no
 * engine. How many. */
uint32_t workers_tell_again(struct agent *a, int signal);
uint32_t workers_kill(struct agent *a); /* how many that were not killed yet */
void workers_kill_hung(struct agent *a, uint32_t rank); /* of any node */
/* How many are alive, of the engines or of the others. */
uint32_t workers_live(const struct agent *a, bool are_engines);
void workers_tick(struct agent *a);
uint64_t workers_deadline(const struct agent *a);
bool workers_are_done(const struct agent *a);
void workers_resend(struct agent *a); /* after a reconnect: ends, requests, refusal */
void workers_release(struct agent *a);

/* agent_requests.c */
void requests_take(struct agent *a, uint32_t slot, const struct control *c);
void requests_decide(struct agent *a, const struct msg_decision *decision);
void requests_resend(struct agent *a); /* after a reconnect: what has no answer yet */

#endif
