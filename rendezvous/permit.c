#include "rendezvous/permit.h"

#include <stdio.h>
#include <string.h>

static const char for_nodes[] =
    "show a secret of jobs (not an operator's), or an agent's certificate that is for "
    "this job and node";

static int refuse(const struct identity *who, struct errmsg *msg, const char *what,
                  const char *remedy)
{
    char name[200];

    identity_describe(who, name, sizeof(name));
    return errmsg_set(msg, ERR_REFUSED,
                      "%s: the key that was shown (%s) does not allow it: %s", what,
                      name, remedy);
}

int permit_entry(const struct identity *who, struct errmsg *msg)
{
    if (!who || who->role == IDENTITY_AGENT || who->role == IDENTITY_OPERATOR) {
        return 0;
    }
    return refuse(who, msg, "to be a node or an operator",
                  "nodes show an agent's certificate, who asks an operator's");
}

int permit_store(const struct identity *who, struct errmsg *msg)
{
    bool may = !who || who->role == IDENTITY_WORKER ||
               (who->role == IDENTITY_AGENT && who->kind == IDENTITY_PSK);

    return may ? 0
               : refuse(who, msg, "to use the store",
                        "show a worker's certificate, or a secret of jobs");
}

/* A certificate's <n> is the node's host name or its number. */
static bool is_node(const struct identity *who, const struct msg_hello *hello)
{
    char number[16];

    (void)snprintf(number, sizeof(number), "%d", hello->node_rank); /* fits */
    return who->name[0] == '\0' || strcmp(who->name, hello->host) == 0 ||
           (hello->node_rank >= 0 && strcmp(who->name, number) == 0);
}

int permit_hello(const struct identity *who, const struct msg_hello *hello,
                 struct errmsg *msg)
{
    char what[512];

    if (!who) {
        return 0;
    }
    (void)snprintf(what, sizeof(what), "to be the node %.100s of job %.255s",
                   hello->host, hello->job);
    if (who->role != IDENTITY_AGENT ||
        (who->job[0] != '\0' && strcmp(who->job, hello->job) != 0) ||
        !is_node(who, hello)) {
        return refuse(who, msg, what, for_nodes);
    }
    if (who->kind == IDENTITY_PSK && who->agent_id != hello->agent_id) {
        return errmsg_set(msg, ERR_REFUSED,
                          "this is the key of another agent, not of node %.100s",
                          hello->host);
    }
    return 0;
}

int permit_operator(const struct identity *who, struct errmsg *msg)
{
    bool may = !who || who->role == IDENTITY_OPERATOR ||
               (who->role == IDENTITY_AGENT && who->kind == IDENTITY_PSK);

    return may ? 0
               : refuse(who, msg, "to ask or to steer",
                        "show an operator's, or the secret of a job");
}

bool permit_every_job(const struct identity *who)
{
    return !who || who->role == IDENTITY_OPERATOR;
}

bool permit_job(const struct identity *who, const char *job, const char *owner)
{
    if (permit_every_job(who)) {
        return true;
    }
    return (who->job[0] == '\0' || strcmp(who->job, job) == 0) &&
           strcmp(who->owner, owner) == 0;
}

int permit_take(const struct identity *who, const char *job,
                char owner[IDENTITY_OWNER_MAX], struct errmsg *msg)
{
    if (!who) {
        return 0; /* where no key is asked for, nothing belongs to anybody */
    }
    if (owner[0] == '\0') {
        memcpy(owner, who->owner, IDENTITY_OWNER_MAX);
    }
    if (strcmp(owner, who->owner) == 0) {
        return 0;
    }
    return errmsg_set(msg, ERR_REFUSED,
                      "job %.255s belongs to another secret: give this one another "
                      "--rdzv-id, or the nodes the same secret",
                      job);
}
