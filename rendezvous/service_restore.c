/* PURE. A service that starts with what an earlier one has saved: jobs, nodes, and their
 * sessions, which are away until the agents come back and bring their numbers. */

#include "rendezvous/record_fields.h"
#include "rendezvous/restoring.h"
#include "rendezvous/service_core.h"

#include "common/mem.h"

#include <string.h>

/* --- records --- */

/* The name of the last record, to compare the next one's with. */
static void remember(struct service *s, const struct record *r)
{
    size_t job_size = strlen(r->job) + 1;
    struct record *copy = mem_alloc(sizeof(*copy) + r->key.size + job_size);
    char *text = (char *)(copy + 1);

    *copy = *r;
    memcpy(text, r->job, job_size);
    copy->job = text;
    copy->key.data = (const uint8_t *)text + job_size;
    if (r->key.size > 0) {
        memcpy(text + job_size, r->key.data, r->key.size);
    }
    mem_free(s->restored);
    s->restored = copy;
}

static int add_job(struct service *s, const struct record *r)
{
    struct entry *entry = service_take_job(s, r->job);

    return entry ? restoring_job(entry->job, r) : ERR_CORRUPT;
}

static int add_node(struct service *s, struct entry *entry, const struct record *r)
{
    struct job_node *node;
    struct session *session;
    int rv = restoring_node(entry->job, r, &node);

    if (rv < 0) {
        return rv;
    }
    if (service_find_number(s, node->session)) {
        return ERR_CORRUPT;
    }
    session = mem_zalloc(sizeof(*session));
    session->number = node->session;
    session->agent_id = node->hello.agent_id;
    session->entry = entry;
    session->node = node;
    memcpy(session->peer_addr, node->peer_addr, sizeof(session->peer_addr));
    table_insert(&s->numbers, &session->by_number, session->number);
    table_insert(&s->agents, &session->by_agent, service_hash(s, session->agent_id));
    service_link(&s->away, session, 0);
    s->n_away++;
    return 0;
}

/* Of a node that was lost while its generation was ending: nobody will ask for it. */
static bool is_of_nobody(const struct service *s, const struct entry *entry,
                         const struct record *r)
{
    struct bytes key = r->key;
    const struct session *session;
    uint64_t number;

    if (r->kind != RECORD_CLIENT ||
        record_take_number(&key, sizeof(number), &number) < 0) {
        return false;
    }
    session = service_find_number(s, number);
    return !session || session->entry != entry;
}

static int add_record(struct service *s, const struct record *r)
{
    struct entry *entry = registry_find(&s->jobs, r->job);

    switch (r->kind) {
    case RECORD_JOB:
        return add_job(s, r);
    case RECORD_FINISHED:
        return finished_restore(&s->finished, r);
    case RECORD_COMMIT:
    case RECORD_EVENT:
    case RECORD_CURVE:
        return 0; /* history's */
    case RECORD_NODE:
        return entry ? add_node(s, entry, r) : ERR_CORRUPT;
    case RECORD_END:
    case RECORD_KEY:
    case RECORD_QUEUE:
    case RECORD_CLIENT:
    case RECORD_CAUSE:
    case RECORD_MEMBERS:
    case RECORD_FLAPPERS:
    case RECORD_REPORT:
    case RECORD_PACE:
        if (!entry) {
            return ERR_CORRUPT;
        }
        return is_of_nobody(s, entry, r) ? 0 : restoring_rest(entry->job, r);
    case RECORD_START:
        return starts_restore(&s->starts, r);
    case RECORD_KIND_COUNT:
        break;
    }
    return ERR_CORRUPT;
}

static const char *kind_name(enum record_kind kind)
{
    static const char *const names[RECORD_KIND_COUNT] = {
        [RECORD_JOB] = "job",           [RECORD_NODE] = "node",
        [RECORD_END] = "end of a rank", [RECORD_KEY] = "key",
        [RECORD_QUEUE] = "queue",       [RECORD_CLIENT] = "store client",
        [RECORD_FINISHED] = "end",      [RECORD_COMMIT] = "commit",
        [RECORD_EVENT] = "event",       [RECORD_CAUSE] = "cause",
        [RECORD_MEMBERS] = "members",   [RECORD_FLAPPERS] = "flappers",
        [RECORD_REPORT] = "report",     [RECORD_CURVE] = "curve",
        [RECORD_PACE] = "pace",         [RECORD_START] = "start",
    };

    return kind > 0 && kind < RECORD_KIND_COUNT ? names[kind] : "unknown";
}

static int complain(int rv, const char *job, const char *what, struct errmsg *msg)
{
    if (rv == ERR_UNSUPPORTED) {
        return errmsg_set(msg, rv,
                          "the saved state (job %.64s, %s) was written by another "
                          "version of ctrun-rendezvous",
                          job, what);
    }
    return errmsg_set(msg, rv, "the saved state is damaged (job %.64s, %s)", job, what);
}

int service_restore(struct service *s, const struct record *r, struct errmsg *msg)
{
    bool has_name =
        (r->job[0] != '\0' || r->kind == RECORD_START) && strlen(r->job) < MSG_ID_MAX;
    bool is_next = !s->restored || record_compare(s->restored, r) < 0;
    int rv = ERR_CORRUPT;

    if (r->act == RECORD_PUT && has_name && is_next && r->key.size <= RECORD_KEY_MAX) {
        rv = add_record(s, r);
    }
    if (rv < 0) {
        return complain(rv, r->job, kind_name(r->kind), msg);
    }
    remember(s, r);
    return 0;
}

/* --- the start --- */

/* Terms end one after the other, within a quarter of the lease. */
void restore_refresh(struct service *s, uint64_t now_ms)
{
    uint64_t spread_ms = s->config.lease_ms / 4;
    uint64_t i = 0;

    for (struct session *session = s->away.oldest; session; session = session->next) {
        session->seen_ms = now_ms + spread_ms * i++ / s->n_away;
    }
}

struct session *restore_find(const struct service *s, const struct msg_hello *hello)
{
    struct session *session = hello->session != 0 && hello->cluster == s->config.cluster
                                  ? service_find_number(s, hello->session)
                                  : NULL;
    bool is_it = session && session->conn == 0 &&
                 session->agent_id == hello->agent_id &&
                 strcmp(session->entry->job->id, hello->job) == 0;

    return is_it ? session : NULL;
}

int service_restored(struct service *s, uint64_t now_ms, struct errmsg *msg)
{
    mem_free(s->restored);
    s->restored = NULL;
    s->tick_ms = now_ms;
    for (size_t i = s->jobs.n; i > 0; i--) { /* one that is forgotten gives its place */
        struct entry *entry = s->jobs.entry[i - 1];
        int rv = restoring_end(entry->job, now_ms);

        if (rv < 0) {
            return complain(rv, entry->job->id, "its parts", msg);
        }
        service_review_job(s, entry, now_ms);
    }
    for (size_t i = 0; i < s->jobs.n; i++) {
        service_note_deadline(s, s->jobs.entry[i]);
    }
    restore_refresh(s, now_ms);
    return 0;
}
