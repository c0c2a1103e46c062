#ifndef RENDEZVOUS_SERVICE_CORE_H
#define RENDEZVOUS_SERVICE_CORE_H

/* PURE. What service.c (sessions, messages, time) and service_restore.c (the start from
 * saved records) share and nobody else sees. */

#include "rendezvous/finished.h"
#include "rendezvous/registry.h"
#include "rendezvous/service.h"
#include "rendezvous/starts.h"
#include "rendezvous/store.h"

#include "common/table.h"

/* A connection of an agent: from its opening, through its hello, to its end. Or what is
 * left of one from before the service's start: away, until the agent is back. */
struct session {
    struct table_node by_conn;
    struct table_node by_number, by_agent; /* once it has said hello */
    uint64_t conn;                         /* 0: away */
    uint64_t number;                       /* 0 before the hello */
    uint64_t agent_id;
    char peer_addr[MSG_ADDR_MAX];
    uint64_t seen_ms; /* last message; of one that is away: its term's begin */
    struct session *prev, *next; /* in the service's list of those here, or away */
    struct entry *entry;   /* borrowed: kept while it has sessions; NULL before hello */
    struct job_node *node; /* borrowed from the job */
    const struct identity *who; /* borrowed from the connection; NULL: shown nothing */
};

/* In the order in which their leases end. */
struct session_list {
    struct session *oldest, *newest;
};

struct service {
    struct service_config config;
    struct store_budget budget;          /* of the jobs' key spaces */
    struct rank_budget ranks;            /* of the jobs' nodes */
    struct table conns, numbers, agents; /* of sessions, owned */
    struct session_list here, away;
    size_t n_away; /* known from before the start, and not back yet */
    struct registry jobs;
    struct finished finished; /* jobs that are over and gone */
    struct starts starts;
    bool is_last;         /* it ends: service_finish */
    uint64_t n_numbers;   /* given so far */
    uint64_t jobs_due_ms; /* no job wants a tick before */
    uint64_t tick_ms;     /* the last tick … */
    uint64_t late_ms; /* … came so much later than it was due: it had been asleep */
    struct record *restored; /* owned: the name of the last one, while it restores */
};

uint64_t service_hash(const struct service *s, uint64_t number);
uint64_t service_kept(const struct service *s); /* service_sink.kept */
struct session *service_find_conn(const struct service *s, uint64_t conn);
struct session *service_find_agent(const struct service *s, const struct entry *entry,
                                   uint64_t agent_id);
struct session *service_find_number(const struct service *s, uint64_t number);
void service_link(struct session_list *list, struct session *session, uint64_t now_ms);
void service_unlink(struct session_list *list, struct session *session);
/* Finds it, or makes it; NULL when there are too many. */
struct entry *service_take_job(struct service *s, const char *id);
/* A job without nodes is forgotten, or idle. */
void service_review_job(struct service *s, struct entry *entry, uint64_t now_ms);
void service_note_deadline(struct service *s, const struct entry *entry);

/* service_permit.c: whether this connection may say that; refusals are counted. */
int service_permit(const struct service *s, const struct session *session,
                   const struct msg_hello *hello, struct errmsg *msg) MUST_CHECK;
/* A job belongs to who has begun it. */
void service_own(const struct session *session, struct job *job);

/* `close` when the other side does not know yet. */
void service_end_session(struct service *s, struct session *session, const char *why,
                         bool close, uint64_t now_ms);

/* service_hello.c: a session's first message. */
void service_hello(struct service *s, struct session *session,
                   const struct msg_hello *hello, uint64_t now_ms);

/* service_restore.c: gives everybody who is away a fresh term. */
void restore_refresh(struct service *s, uint64_t now_ms);
/* The session from before the service's start that this agent brings back; NULL: none. */
struct session *restore_find(const struct service *s, const struct msg_hello *hello);

#endif
