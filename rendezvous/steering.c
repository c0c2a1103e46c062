#include "rendezvous/steering.h"

#include "rendezvous/event_json.h"
#include "rendezvous/job.h"
#include "rendezvous/permit.h"
#include "rendezvous/registry.h"
#include "rendezvous/service.h"

#include "common/mem.h"
#include "common/str.h"

#include <stdio.h>
#include <string.h>

/* ---- which job ---- */

/* … and its to steer. */
static bool is_live(const struct steering *by, const struct job *j)
{
    return !job_is_over(j) && !job_is_stopped(j) &&
           permit_job(by->key, j->id, j->owner);
}

static int find_only(const struct steering *by, struct job **ret, struct errmsg *msg)
{
    const struct registry *r = service_jobs(by->service);
    struct job *found = NULL;
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++) {
        if (is_live(by, r->entry[i]->job)) {
            found = r->entry[i]->job;
            n++;
        }
    }
    if (n != 1) {
        return errmsg_set(msg, n == 0 ? ERR_MISSING : ERR_REFUSED,
                          n == 0 ? "no job runs here"
                                 : "several jobs run here (ctrun status lists them): "
                                   "name one");
    }
    *ret = found;
    return 0;
}

static int find_job(const struct steering *by, const char *id, struct job **ret,
                    struct errmsg *msg)
{
    const struct entry *entry = registry_find(service_jobs(by->service), id);

    if (id[0] == '\0') {
        return find_only(by, ret, msg);
    }
    if (!entry || !permit_job(by->key, id, entry->job->owner)) {
        return errmsg_set(msg, ERR_MISSING, "this server knows no job %s that runs",
                          id);
    }
    if (!is_live(by, entry->job)) {
        return errmsg_set(msg, ERR_MISSING, "job %s is over", id);
    }
    *ret = entry->job;
    return 0;
}

/* ---- cancel ---- */

int steering_cancel(const struct steering *by, const char *job, uint64_t now_ms,
                    json_t **ret, struct errmsg *msg)
{
    const char *state = "cancelled";
    char text[MSG_TEXT_MAX];
    struct job *j = NULL;
    json_t *id;
    int rv = find_job(by, job, &j, msg);

    if (rv < 0) {
        return rv;
    }
    ASSERT(j);
    id = event_json_text(j->id);
    (void)snprintf(text, sizeof(text), STOP_CANCELLED "%s", by->who);
    if (j->state != JOB_FORMING) {
        state = "draining"; /* its workers save first */
    }
    service_cancel(by->service, j, text, now_ms);
    *ret = json_pack("{s:o, s:s}", "job", id, "state", state);
    return 0;
}

/* ---- drain ---- */

static void send_home(struct job *j, struct job_node *node, const char *who)
{
    struct msg m = {.type = MSG_DRAIN};
    char name[JOB_NODE_NAME_MAX];
    char text[MSG_TEXT_MAX];

    job_name_node(j, node, name, sizeof(name));
    (void)snprintf(node->drained, sizeof(node->drained), "by %s", who);
    memcpy(m.u.drain.text, node->drained, sizeof(node->drained));
    saving_touch(j, node);
    (void)snprintf(text, sizeof(text), "node %s is drained by %s", name, who);
    job_note_node(j, OPERATOR_ACTS, node, text);
    j->sink.send(j->sink.arg, node->session, &m);
}

static json_t *describe(const struct job *j, const struct job_node *node)
{
    return json_pack("{s:o, s:o, s:i}", "job", event_json_text(j->id), "host",
                     event_json_text(node->hello.host), "group_rank",
                     node->ranked_in == j->generation ? node->group_rank : -1);
}

struct meant {
    struct job *job;
    struct job_node *node;
};

/* Those who are meant by a name, or by a group rank (-1: by none). */
struct aim {
    const char *name;
    int64_t group_rank;
    struct meant *meant; /* owned; a job's stand together */
    size_t n;
};

static bool is_meant(const struct job *j, const struct job_node *node,
                     const struct aim *aim)
{
    bool has_its_rank = aim->group_rank >= 0 && node->group_rank == aim->group_rank &&
                        node->ranked_in == j->generation && node->state != NODE_LEFT;

    return !node->is_leaving &&
           (strcmp(node->hello.host, aim->name) == 0 || has_its_rank);
}

static void aim_in(struct aim *aim, struct job *j)
{
    for (size_t i = 0; i < j->n_nodes; i++) {
        if (is_meant(j, j->node[i], aim)) {
            aim->meant = mem_grow(aim->meant, aim->n + 1, sizeof(*aim->meant));
            aim->meant[aim->n++] = (struct meant){j, j->node[i]};
        }
    }
}

/* On a host's name, in all jobs. */
static void aim_everywhere(struct aim *aim, const struct steering *by)
{
    const struct registry *r = service_jobs(by->service);
    struct entry **sorted = registry_sorted(r);

    for (size_t i = 0; i < r->n; i++) {
        if (is_live(by, sorted[i]->job)) {
            aim_in(aim, sorted[i]->job);
        }
    }
    mem_free(sorted);
}

static int take_aim(struct aim *aim, const struct steering *by, const char *job,
                    struct errmsg *msg)
{
    struct job *j = NULL;
    bool is_number =
        str_parse_i64(aim->name, &aim->group_rank) == 0 && aim->group_rank >= 0;
    int rv = 0;

    if (job[0] != '\0' || is_number) {
        rv = find_job(by, job, &j, msg);
    }
    if (rv == 0 && j) {
        aim_in(aim, j);
    } else if (rv == 0) {
        aim_everywhere(aim, by);
    }
    if (rv == 0 && aim->n == 0) {
        rv = errmsg_set(msg, ERR_MISSING,
                        "no job here has a node %s that is not leaving (ctrun status "
                        "JOB lists its nodes)",
                        aim->name);
    }
    return rv;
}

static json_t *list_meant(const struct aim *aim)
{
    json_t *list = json_array();

    for (size_t i = 0; i < aim->n; i++) {
        (void)json_array_append_new(list,
                                    describe(aim->meant[i].job, aim->meant[i].node));
    }
    return list;
}

static void send_all_home(const struct aim *aim, const char *who)
{
    for (size_t i = 0; i < aim->n; i++) {
        struct job *j = aim->meant[i].job;

        send_home(j, aim->meant[i].node, who);
        if (i + 1 == aim->n || aim->meant[i + 1].job != j) {
            saving_end_of_event(j);
        }
    }
}

int steering_drain(const struct steering *by, const char *job, const char *node,
                   json_t **ret, struct errmsg *msg)
{
    struct aim aim = {.name = node, .group_rank = -1};
    int rv = take_aim(&aim, by, job, msg);

    if (rv == 0 && aim.n <= by->max_drained) {
        *ret = json_pack("{s:o}", "nodes", list_meant(&aim));
        send_all_home(&aim, by->who);
    } else if (rv == 0) {
        *ret = json_pack("{s:o}", "meant", list_meant(&aim));
    }
    mem_free(aim.meant);
    return rv;
}
