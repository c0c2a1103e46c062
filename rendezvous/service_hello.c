/* PURE. An agent says who it is: it is refused, takes its session up again, or begins one
 * in its job. */

#include "rendezvous/permit.h"
#include "rendezvous/resuming.h"
#include "rendezvous/service_core.h"

#include "common/exit_code.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    HEARTBEATS_MISSED = 2, /* a lease's part in which at least one must have come */
};

/* A number that nobody can guess, as hash of the count. */
static uint64_t new_number(struct service *s)
{
    uint64_t number;

    do {
        uint64_t count[2] = {s->config.boot, ++s->n_numbers};

        number = table_hash(count, sizeof(count), s->config.seed);
    } while (number == 0 || service_find_number(s, number));
    return number;
}

static void refuse(struct service *s, struct session *session, uint32_t exit_code,
                   const char *text, uint64_t now_ms)
{
    struct msg m = {.type = MSG_REFUSED, .u.refused = {.exit_code = exit_code}};

    (void)snprintf(m.u.refused.text, sizeof(m.u.refused.text), "%s", text);
    s->config.sink.send(s->config.sink.arg, session->conn, &m);
    service_end_session(s, session, "refused", true, now_ms);
}

/* Of those that are told how their job has ended nobody needs to hear. */
static void note_refusal(const struct service *s, const struct msg_hello *hello,
                         const char *why)
{
    const struct entry *entry = registry_find(&s->jobs, hello->job);

    if (s->config.sink.note) {
        s->config.sink.note(s->config.sink.arg,
                            &(struct job_event){.kind = NODE_IS_REFUSED,
                                                .job = hello->job,
                                                .owner = entry ? entry->job->owner : "",
                                                .node = hello->host,
                                                .why = why});
    }
}

/* The same --node-rank on the same host, by an agent that has missed a heartbeat: it
 * lost its power, say, and its end never reached us. */
static struct session *find_silent_twin(const struct service *s,
                                        const struct entry *entry,
                                        const struct msg_hello *hello, uint64_t now_ms)
{
    const struct job_node *node = NULL;
    struct session *twin;

    while ((node = job_of_node_rank(entry->job, hello->node_rank, node)) != NULL) {
        if (strcmp(node->hello.host, hello->host) != 0) {
            continue;
        }
        twin = service_find_number(s, node->session);
        if (twin && now_ms > twin->seen_ms + s->config.lease_ms / HEARTBEATS_MISSED) {
            return twin;
        }
    }
    return NULL;
}

/* The agent, or the node, has come back before we knew that its old connection is gone.
 */
static void replace_old_session(struct service *s, const struct msg_hello *hello,
                                uint64_t now_ms)
{
    const struct entry *entry = registry_find(&s->jobs, hello->job);
    struct session *old = entry ? service_find_agent(s, entry, hello->agent_id) : NULL;

    if (old) {
        service_end_session(s, old, "it connected anew", true, now_ms);
        return;
    }
    old = entry ? find_silent_twin(s, entry, hello, now_ms) : NULL;
    if (old) {
        service_end_session(s, old, "it was started anew", true, now_ms);
    }
}

/* What of the start that the agent has seen our state has. */
static bool has_start(const struct service *s, const struct msg_hello *hello,
                      uint64_t *ret_had)
{
    *ret_had = 0;
    return hello->start == 0 ||
           starts_have(&s->starts, hello->boot, hello->start, service_kept(s), ret_had);
}

/* `highest`: of the job's generations, as far as we know by ourselves. */
static void welcome(struct service *s, const struct session *session,
                    const struct msg_hello *hello, uint64_t highest)
{
    uint64_t had;
    bool has = has_start(s, hello, &had);
    struct msg m = {.type = MSG_WELCOME,
                    .u.welcome = {
                        .session = session->number,
                        .cluster = s->config.cluster,
                        .boot = s->config.boot,
                        .start = s->config.start,
                        .ephemeral = s->config.ephemeral,
                        .lease_ms = s->config.lease_ms,
                        .generation = highest,
                        .kept = service_kept(s),
                        .lacks = !has,
                        .had = had,
                    }};

    memcpy(m.u.welcome.peer_addr, session->peer_addr, sizeof(m.u.welcome.peer_addr));
    s->config.sink.send(s->config.sink.arg, session->conn, &m);
}

static void begin_session(struct service *s, struct session *session,
                          struct entry *entry, const struct job_guest *guest,
                          uint64_t highest)
{
    session->number = guest->session;
    session->entry = entry;
    table_insert(&s->numbers, &session->by_number, session->number);
    table_insert(&s->agents, &session->by_agent, service_hash(s, session->agent_id));
    registry_set_busy(&s->jobs, entry);
    welcome(s, session, guest->hello, highest);
}

/* The node was in that job, and away when it ended. A server without memory does not
 * know who was there before its own start; nobody else brings a generation along. */
static bool is_survivor(const struct service *s, const struct msg_hello *hello,
                        const struct finished_job *past, uint64_t now_ms)
{
    if (!past || hello->generation == 0) {
        return false;
    }
    return hello->cluster == s->config.cluster
               ? hello->generation <= past->generation
               : s->config.ephemeral && now_ms - past->noted_ms < FINISHED_LATE_MS;
}

/* It comes when the job is over, and nobody has begun it anew. */
static bool is_late(const struct service *s, const struct job_guest *guest,
                    const struct finished_job *past, uint64_t now_ms)
{
    return past && !registry_find(&s->jobs, guest->hello->job) &&
           finished_is_late(
               past, guest->hello,
               members_key(guest->hello, guest->peer_addr, s->config.cluster), now_ms);
}

static void refuse_late(struct service *s, struct session *session,
                        const struct finished_job *past, uint64_t now_ms)
{
    struct errmsg msg = {""};

    (void)errmsg_set(&msg, ERR_REFUSED,
                     "%.700s; this node came too late for it (to run it again, give it "
                     "another --rdzv-id, or wait %d s)",
                     past->text, FINISHED_LATE_MS / 1000);
    refuse(s, session, past->exit_code, msg.text, now_ms);
}

/* The agent is back after our restart: its session lives on on this connection. */
static void resume(struct service *s, struct session *session, struct session *away,
                   const struct msg_hello *hello, uint64_t now_ms)
{
    struct entry *entry = away->entry;

    away->conn = session->conn;
    away->who = session->who;
    memcpy(away->peer_addr, session->peer_addr, sizeof(away->peer_addr));
    service_unlink(&s->away, away);
    s->n_away--;
    service_unlink(&s->here, session);
    table_remove(&s->conns, &session->by_conn);
    mem_free(session);
    table_insert(&s->conns, &away->by_conn, service_hash(s, away->conn));
    service_link(&s->here, away, now_ms);
    welcome(s, away, hello, entry->job->highest);
    job_return(entry->job, away->node, hello, now_ms);
    service_note_deadline(s, entry);
}

static void refuse_version(struct service *s, struct session *session,
                           const struct msg_hello *hello, uint64_t now_ms)
{
    struct errmsg msg = {""};

    (void)errmsg_set(&msg, ERR_REFUSED,
                     "this service speaks version %d of the agent protocol, the node "
                     "version %u: install the same ctrun everywhere",
                     MSG_VERSION, hello->version);
    note_refusal(s, hello, msg.text);
    refuse(s, session, EXIT_RENDEZVOUS, msg.text, now_ms);
}

/* It has followed another service, or a state that ours is not: what it says is not about
 * us, nor is for it what we would say of its job. */
static bool is_stranger(const struct service *s, const struct msg_hello *hello,
                        struct errmsg *msg)
{
    uint64_t had;

    if (hello->start == 0) {
        return false;
    }
    if (hello->cluster != s->config.cluster) {
        (void)errmsg_set(msg, ERR_REFUSED, "it belongs to another service (%016llx)",
                         (unsigned long long)hello->cluster);
        return true;
    }
    if (!has_start(s, hello, &had) || had < hello->kept) {
        (void)errmsg_set(msg, ERR_REFUSED,
                         "it has followed start %llu of this service up to transaction "
                         "%llu, which this state lacks: it is an older one, or a copy "
                         "that went its own way",
                         (unsigned long long)hello->boot,
                         (unsigned long long)hello->kept);
        return true;
    }
    return false;
}

/* It learns who we are, and no more; nothing of ours changes. */
static void turn_away(struct service *s, struct session *session,
                      const struct msg_hello *hello, const char *why, uint64_t now_ms)
{
    note_refusal(s, hello, why);
    welcome(s, session, hello, 0);
    service_end_session(s, session, "it has followed another state", true, now_ms);
}

/* True when it was refused, for the job has ended already; of another owner's it hears
 * nothing. */
static bool refuse_past(struct service *s, struct session *session,
                        const struct job_guest *guest, const struct finished_job *past,
                        uint64_t now_ms)
{
    if (past && !permit_job(session->who, past->id, past->owner)) {
        return false;
    }
    if (is_survivor(s, guest->hello, past, now_ms)) {
        refuse(s, session, past->exit_code, past->text, now_ms);
        return true;
    }
    if (is_late(s, guest, past, now_ms)) {
        refuse_late(s, session, past, now_ms);
        return true;
    }
    return false;
}

/* Its job, begun where it is not there yet; NULL: there is no room, and it was refused.
 */
static struct entry *take_entry(struct service *s, struct session *session,
                                const struct msg_hello *hello, uint64_t now_ms)
{
    struct entry *entry;
    struct errmsg msg = {""};

    if (s->budget.space != SPACE_FINE && !registry_find(&s->jobs, hello->job)) {
        (void)errmsg_set(&msg, ERR_REFUSED,
                         "the disk on which this service keeps its state is full: no "
                         "new job is begun until there is space");
        note_refusal(s, hello, msg.text);
        refuse(s, session, EXIT_RENDEZVOUS, msg.text, now_ms);
        return NULL;
    }
    entry = service_take_job(s, hello->job);
    if (!entry) {
        (void)errmsg_set(&msg, ERR_REFUSED,
                         "no room for job %s: this service has %d jobs, and takes no "
                         "more; wait until one has ended, or start another "
                         "ctrun-rendezvous",
                         hello->job, REGISTRY_MAX);
        note_refusal(s, hello, msg.text);
        refuse(s, session, EXIT_RENDEZVOUS, msg.text, now_ms);
    }
    return entry;
}

/* Into its job, as a node that is not known yet. */
static void enter(struct service *s, struct session *session,
                  const struct job_guest *guest, const struct finished_job *past,
                  uint64_t now_ms)
{
    const struct msg_hello *hello = guest->hello;
    struct entry *entry = take_entry(s, session, hello, now_ms);
    struct errmsg msg = {""};
    uint32_t exit_code = 0;
    uint64_t highest;

    if (!entry) {
        return;
    }
    service_own(session, entry->job);
    if (past) { /* begun anew by a user: its generations are told from the old ones */
        entry->job->highest = MAX(entry->job->highest, past->generation);
    }
    highest = entry->job->highest;
    if (job_hello(entry->job, guest, &session->node, &exit_code, &msg) < 0) {
        note_refusal(s, hello, msg.text);
        service_review_job(s, entry, now_ms);
        refuse(s, session, exit_code, msg.text, now_ms);
        return;
    }
    session->agent_id = hello->agent_id;
    begin_session(s, session, entry, guest, highest);
    resuming_tell_drained(entry->job, session->node);
}

void service_hello(struct service *s, struct session *session,
                   const struct msg_hello *hello, uint64_t now_ms)
{
    struct session *away = restore_find(s, hello);
    struct job_guest guest = {new_number(s), hello, session->peer_addr};
    const struct finished_job *past;
    struct errmsg msg = {""};

    if (hello->version != MSG_VERSION) {
        refuse_version(s, session, hello, now_ms);
    } else if (service_permit(s, session, hello, &msg) < 0) {
        refuse(s, session, EXIT_RENDEZVOUS, msg.text, now_ms);
    } else if (is_stranger(s, hello, &msg)) {
        turn_away(s, session, hello, msg.text, now_ms);
    } else if (away) {
        resume(s, session, away, hello, now_ms);
    } else {
        replace_old_session(s, hello, now_ms);
        past = finished_find(&s->finished, hello->job, now_ms);
        if (!refuse_past(s, session, &guest, past, now_ms)) {
            enter(s, session, &guest, past, now_ms);
        }
    }
}
