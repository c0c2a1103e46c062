#include "rendezvous/service.h"

#include "rendezvous/draining.h"
#include "rendezvous/limits.h"
#include "rendezvous/operator.h"
#include "rendezvous/service_core.h"
#include "rendezvous/tally.h"

#include "common/err.h"
#include "common/exit_code.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

struct service *service_new(const struct service_config *config)
{
    struct service *s = mem_zalloc(sizeof(*s));

    s->config = *config;
    s->budget.max =
        config->store_max_bytes ? config->store_max_bytes : LIMIT_STORE_BYTES;
    s->budget.max_part = config->job_max_bytes;
    s->ranks.max = LIMIT_RANKS;
    s->jobs_due_ms = UINT64_MAX;
    table_init(&s->conns);
    table_init(&s->numbers);
    table_init(&s->agents);
    registry_init(&s->jobs, config->seed);
    starts_init(&s->starts,
                &(struct start){config->boot, config->start, config->found});
    if (config->sink.save) {
        s->jobs.on_forget = saving_forget;
        s->finished.save = config->sink.save;
        s->finished.save_arg = config->sink.arg;
    }
    return s;
}

static void free_sessions(struct session_list *list)
{
    while (list->oldest) {
        struct session *session = list->oldest;

        list->oldest = session->next;
        mem_free(session);
    }
}

void service_free(struct service *s)
{
    if (!s) {
        return;
    }
    free_sessions(&s->here);
    free_sessions(&s->away);
    mem_free(s->restored);
    registry_release(&s->jobs);
    finished_release(&s->finished);
    starts_release(&s->starts);
    table_release(&s->conns);
    table_release(&s->numbers);
    table_release(&s->agents);
    mem_free(s);
}

/* --- sessions --- */

uint64_t service_hash(const struct service *s, uint64_t number)
{
    return table_hash(&number, sizeof(number), s->config.seed);
}

struct session *service_find_conn(const struct service *s, uint64_t conn)
{
    struct table_node *n = table_bucket(&s->conns, service_hash(s, conn));

    while (n && CONTAINER_OF(n, struct session, by_conn)->conn != conn) {
        n = n->next;
    }
    return n ? CONTAINER_OF(n, struct session, by_conn) : NULL;
}

struct session *service_find_number(const struct service *s, uint64_t number)
{
    struct table_node *n = table_bucket(&s->numbers, number);

    while (n && n->hash != number) {
        n = n->next;
    }
    return n ? CONTAINER_OF(n, struct session, by_number) : NULL;
}

struct session *service_find_agent(const struct service *s, const struct entry *entry,
                                   uint64_t agent_id)
{
    struct table_node *n = table_bucket(&s->agents, service_hash(s, agent_id));

    for (; n; n = n->next) {
        struct session *session = CONTAINER_OF(n, struct session, by_agent);

        if (session->agent_id == agent_id && session->entry == entry) {
            return session;
        }
    }
    return NULL;
}

void service_unlink(struct session_list *list, struct session *session)
{
    *(session->prev ? &session->prev->next : &list->oldest) = session->next;
    *(session->next ? &session->next->prev : &list->newest) = session->prev;
}

/* It was heard now: the newest. */
void service_link(struct session_list *list, struct session *session, uint64_t now_ms)
{
    session->seen_ms = now_ms;
    session->prev = list->newest;
    session->next = NULL;
    *(list->newest ? &list->newest->next : &list->oldest) = session;
    list->newest = session;
}

static void hear(struct service *s, struct session *session, uint64_t now_ms)
{
    service_unlink(&s->here, session);
    service_link(&s->here, session, now_ms);
}

/* --- jobs --- */

uint64_t service_kept(const struct service *s)
{
    return s->config.sink.kept ? s->config.sink.kept(s->config.sink.arg) : 0;
}

/* The job's sink: sessions are what it knows. */
static void on_job_send(void *arg, uint64_t number, const struct msg *m)
{
    struct service *s = arg;
    struct session *session = service_find_number(s, number);

    if (session && session->conn != 0) {
        s->config.sink.send(s->config.sink.arg, session->conn, m);
    }
}

static void on_job_save(void *arg, const struct record *r)
{
    struct service *s = arg;

    s->config.sink.save(s->config.sink.arg, r);
}

static uint64_t on_job_kept(void *arg)
{
    return service_kept(arg);
}

static void on_job_note(void *arg, const struct job_event *e)
{
    struct service *s = arg;

    if (s->config.sink.note) {
        s->config.sink.note(s->config.sink.arg, e);
    }
}

struct entry *service_take_job(struct service *s, const char *id)
{
    const struct job_sink sink = {s, on_job_send, on_job_note,
                                  s->config.sink.save ? on_job_save : NULL,
                                  s->config.sink.kept ? on_job_kept : NULL};
    struct entry *entry = registry_find(&s->jobs, id);
    struct job *job;

    if (entry || !registry_make_room(&s->jobs)) {
        return entry;
    }
    job = job_new(id, s->config.cluster, s->config.seed, &s->budget, &s->ranks, &sink);
    job->is_last = s->is_last;
    return registry_add(&s->jobs, job);
}

/* A job without sessions is forgotten when it is over (but not that it was) or has never
 * run; else its nodes may come back. */
void service_review_job(struct service *s, struct entry *entry, uint64_t now_ms)
{
    const struct job *job = entry->job;

    if (job->n_nodes > 0) {
        return;
    }
    if (job_is_over(job)) {
        finished_note(&s->finished, job, now_ms);
    }
    if (job_is_over(job) || job->generation == 0) {
        registry_forget(&s->jobs, entry);
    } else {
        registry_set_idle(&s->jobs, entry);
    }
}

/* After an event of that job. */
void service_note_deadline(struct service *s, const struct entry *entry)
{
    s->jobs_due_ms = MIN(s->jobs_due_ms, job_deadline(entry->job));
}

/* --- connections --- */

/* Ends a session. `close` when the other side does not know yet. */
void service_end_session(struct service *s, struct session *session, const char *why,
                         bool close, uint64_t now_ms)
{
    struct entry *entry = session->entry;
    struct job_node *node = session->node;
    uint64_t conn = session->conn;

    service_unlink(conn != 0 ? &s->here : &s->away, session);
    if (conn != 0) {
        table_remove(&s->conns, &session->by_conn);
    } else {
        s->n_away--;
    }
    if (entry) {
        table_remove(&s->numbers, &session->by_number);
        table_remove(&s->agents, &session->by_agent);
    }
    mem_free(session);
    if (close && conn != 0) {
        s->config.sink.close(s->config.sink.arg, conn);
    }
    if (entry) {
        job_lost(entry->job, node, why, now_ms);
        service_note_deadline(s, entry);
        service_review_job(s, entry, now_ms);
    }
}

void service_opened(struct service *s, uint64_t conn, const char *peer_addr,
                    uint64_t now_ms)
{
    struct session *session = mem_zalloc(sizeof(*session));

    ASSERT(conn != 0 && !service_find_conn(s, conn));
    if (!s->here.oldest && !s->away.oldest) {
        s->tick_ms = now_ms; /* there was nothing to tick for */
    }
    session->conn = conn;
    (void)snprintf(session->peer_addr, sizeof(session->peer_addr), "%s", peer_addr);
    table_insert(&s->conns, &session->by_conn, service_hash(s, conn));
    service_link(&s->here, session, now_ms);
}

void service_heard(struct service *s, uint64_t conn, uint64_t now_ms)
{
    struct session *session = service_find_conn(s, conn);

    if (session) {
        hear(s, session, now_ms);
    }
}

void service_closed(struct service *s, uint64_t conn, uint64_t now_ms)
{
    struct session *session = service_find_conn(s, conn);

    if (session) {
        service_end_session(s, session, "its connection ended", false, now_ms);
    }
}

/* --- messages --- */

/* Nodes that were given different names for one job wait for each other in vain. Of
 * another owner's jobs they hear nothing. */
static const char *other_that_waits(const struct service *s, const struct job *job)
{
    for (size_t i = 0; i < s->jobs.n && job->state == JOB_FORMING; i++) {
        const struct job *other = s->jobs.entry[i]->job;
        bool waits = other->state == JOB_FORMING && other->count[NODE_JOINED] > 0;

        if (waits && other != job && strcmp(other->owner, job->owner) == 0) {
            return other->id;
        }
    }
    return "";
}

static void on_heartbeat(struct service *s, const struct session *session,
                         const struct msg_heartbeat *heartbeat, uint64_t now_ms)
{
    const struct job *job = session->entry->job;
    struct msg m = {.type = MSG_PONG};
    struct msg_pong *pong = &m.u.pong;

    pong->sent_ms = heartbeat->sent_ms;
    pong->service_ms = now_ms;
    pong->kept = service_kept(s);
    pong->n_joined = (uint32_t)job->count[NODE_JOINED];
    (void)snprintf(pong->also_waiting, sizeof(pong->also_waiting), "%s",
                   other_that_waits(s, job));
    s->config.sink.send(s->config.sink.arg, session->conn, &m);
}

static void on_inspected(const struct service *s, const struct session *session,
                         const struct msg_inspected *m)
{
    if (s->config.sink.inspected) {
        s->config.sink.inspected(s->config.sink.arg, session->number, m);
    }
}

int service_message(struct service *s, uint64_t conn, const struct msg *m,
                    uint64_t now_ms)
{
    struct session *session = service_find_conn(s, conn);

    if (!session) {
        return 0; /* it was closed a moment ago */
    }
    if (session->entry && now_ms - session->seen_ms > s->config.lease_ms / 2) {
        job_excuse(session->entry->job, now_ms); /* it was asleep, or cut off */
    }
    if (m->type == MSG_HEARTBEAT && s->config.tally) {
        tally_lease(s->config.tally, s->config.lease_ms, now_ms - session->seen_ms);
    }
    hear(s, session, now_ms);
    if ((m->type == MSG_HELLO) != (session->number == 0)) {
        return ERR_PROTOCOL; /* hello comes first, and once */
    }
    ASSERT(session->number == 0 || session->entry);
    if (m->type == MSG_HELLO) {
        service_hello(s, session, &m->u.hello, now_ms);
    } else if (m->type == MSG_INSPECTED &&
               m->u.inspected.request >= OPERATOR_REQUESTS) {
        on_inspected(s, session, &m->u.inspected);
    } else if (m->type == MSG_HEARTBEAT) {
        on_heartbeat(s, session, &m->u.heartbeat, now_ms);
    } else {
        job_message(session->entry->job, session->node, m, now_ms);
        service_note_deadline(s, session->entry);
    }
    return 0;
}

void service_forsake(struct service *s, uint64_t conn, const struct msg_store_close *m)
{
    struct session *session = service_find_conn(s, conn);

    if (session && session->entry) {
        job_forsake(session->entry->job, session->node, m);
    }
}

/* --- time --- */

static void refresh_all(struct service *s, uint64_t now_ms)
{
    for (struct session *session = s->here.oldest; session; session = session->next) {
        session->seen_ms = now_ms;
    }
    for (size_t i = 0; i < s->jobs.n; i++) {
        job_excuse(s->jobs.entry[i]->job, now_ms);
    }
    restore_refresh(s, now_ms);
}

static bool is_expired(const struct service *s, const struct session *session,
                       uint64_t now_ms)
{
    return session && now_ms >= session->seen_ms + s->config.lease_ms;
}

static void expire_leases(struct service *s, uint64_t now_ms)
{
    char why[64];

    (void)snprintf(why, sizeof(why), "silent for %u ms", s->config.lease_ms);
    while (is_expired(s, s->here.oldest, now_ms)) {
        service_end_session(s, s->here.oldest, why, true, now_ms);
    }
    while (is_expired(s, s->away.oldest, now_ms)) {
        service_end_session(s, s->away.oldest, "it did not come back", true, now_ms);
    }
}

static void tick_jobs(struct service *s, uint64_t now_ms)
{
    s->jobs_due_ms = UINT64_MAX;
    for (size_t i = 0; i < s->jobs.n; i++) {
        job_tick(s->jobs.entry[i]->job, now_ms);
        service_note_deadline(s, s->jobs.entry[i]);
    }
}

/* A service that has been asleep itself (stopped, swapped out) judges nobody by a time
 * in which it could not listen. */
void service_tick(struct service *s, uint64_t now_ms)
{
    uint64_t due = service_deadline(s);

    s->late_ms = 0;
    if (due != UINT64_MAX && now_ms > due + s->config.lease_ms / 4) {
        s->late_ms = now_ms - due;
        refresh_all(s, now_ms);
    }
    s->tick_ms = now_ms;
    expire_leases(s, now_ms);
    if (now_ms >= s->jobs_due_ms) {
        tick_jobs(s, now_ms);
    }
}

uint64_t service_late_ms(const struct service *s)
{
    return s->late_ms;
}

uint64_t service_deadline(const struct service *s)
{
    uint64_t deadline = s->jobs_due_ms;

    if (s->here.oldest) {
        deadline = MIN(deadline, s->here.oldest->seen_ms + s->config.lease_ms);
    }
    if (s->away.oldest) {
        deadline = MIN(deadline, s->away.oldest->seen_ms + s->config.lease_ms);
    }
    if (s->here.oldest || s->away.oldest) {
        deadline = MIN(deadline, s->tick_ms + MAX(s->config.lease_ms / 4, 1));
    }
    return deadline;
}

void service_cancel(struct service *s, struct job *job, const char *why,
                    uint64_t now_ms)
{
    struct entry *entry = registry_find(&s->jobs, job->id);

    ASSERT(entry && entry->job == job);
    job_cancel(job, why, now_ms);
    service_note_deadline(s, entry);
    service_review_job(s, entry, now_ms);
}

void service_finish(struct service *s, const char *why, uint64_t now_ms)
{
    s->is_last = true;
    for (size_t i = 0; i < s->jobs.n; i++) {
        draining_finish(s->jobs.entry[i]->job, why, now_ms);
        service_note_deadline(s, s->jobs.entry[i]);
    }
}

bool service_is_draining(const struct service *s)
{
    for (size_t i = 0; i < s->jobs.n; i++) {
        if (s->jobs.entry[i]->job->state == JOB_DRAINING) {
            return true;
        }
    }
    return false;
}

size_t service_active_jobs(const struct service *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->jobs.n; i++) {
        n += !job_is_over(s->jobs.entry[i]->job) &&
             !job_is_stopped(s->jobs.entry[i]->job);
    }
    return n;
}

const struct registry *service_jobs(const struct service *s)
{
    return &s->jobs;
}

void service_set_space(struct service *s, enum durable_space space)
{
    s->budget.space = space;
}

size_t service_store_used(const struct service *s)
{
    return s->budget.used;
}

size_t service_store_max(const struct service *s)
{
    return s->budget.max;
}

size_t service_sessions(const struct service *s)
{
    return s->numbers.count - s->n_away;
}

void service_set_store(struct service *s, size_t store_max_bytes, size_t job_max_bytes)
{
    s->budget.max = store_max_bytes;
    s->budget.max_part = job_max_bytes;
}
