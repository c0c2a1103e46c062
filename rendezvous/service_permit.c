/* PURE. Who may say this hello (permit.h), and to whom jobs belong. */

#include "rendezvous/permit.h"
#include "rendezvous/refusals.h"
#include "rendezvous/service_core.h"

#include <string.h>

void service_identify(struct service *s, uint64_t conn, const struct identity *who)
{
    struct session *session = service_find_conn(s, conn);

    ASSERT(session);
    session->who = who;
}

static bool is_same(const struct identity *a, const struct identity *b)
{
    return a && b ? identity_is_same(a, b) : a == b;
}

/* A number that we have given to one is of no use to another; of one that is away only
 * agent, job and host are known. */
static bool is_anothers(const struct session *given, const struct session *session,
                        const struct msg_hello *hello)
{
    if (!given || !given->entry) {
        return false;
    }
    return given->agent_id != hello->agent_id ||
           strcmp(given->entry->job->id, hello->job) != 0 ||
           (given->conn != 0 && !is_same(given->who, session->who)) ||
           (session->who && strcmp(given->node->hello.host, hello->host) != 0);
}

static int check_replay(const struct service *s, const struct session *session,
                        const struct msg_hello *hello, struct errmsg *msg)
{
    const struct entry *entry = registry_find(&s->jobs, hello->job);
    const struct session *given =
        hello->session != 0 ? service_find_number(s, hello->session) : NULL;
    const struct session *twin =
        entry ? service_find_agent(s, entry, hello->agent_id) : NULL;
    bool is_twins = twin && twin->conn != 0 && !is_same(twin->who, session->who);

    if (is_twins || is_anothers(given, session, hello)) {
        return errmsg_set(msg, ERR_REFUSED,
                          "the session that node %.100s of job %.255s wants to go on "
                          "with is another node's",
                          hello->host, hello->job);
    }
    return 0;
}

int service_permit(const struct service *s, const struct session *session,
                   const struct msg_hello *hello, struct errmsg *msg)
{
    const struct entry *entry = registry_find(&s->jobs, hello->job);
    char owner[IDENTITY_OWNER_MAX] = "";
    enum refusal why = REFUSAL_ROLE;
    int rv = permit_hello(session->who, hello, msg);

    if (entry) {
        memcpy(owner, entry->job->owner, sizeof(owner));
    }
    if (rv == 0) {
        why = REFUSAL_OWNER;
        rv = permit_take(session->who, hello->job, owner, msg);
    }
    if (rv == 0) {
        why = REFUSAL_REPLAY;
        rv = check_replay(s, session, hello, msg);
    }
    if (rv < 0 && s->config.sink.refused) {
        s->config.sink.refused(s->config.sink.arg, session->conn, why, msg->text);
    }
    return rv;
}

/* service_permit has asked whether it may. */
void service_own(const struct session *session, struct job *job)
{
    if (session->who && job->owner[0] == '\0') {
        memcpy(job->owner, session->who->owner, sizeof(job->owner));
    }
}
