/* PURE. What workers ask the service: whether to resume from a checkpoint, whether one is
 * committed. Each question has a number, and is asked again after a reconnect until it is
 * answered. */

#include "launcher/agent_core.h"

#include <string.h>

static void send_request(struct agent *a, const struct request *r)
{
    struct msg m = {0};

    if (r->is_commit) {
        m.type = MSG_COMMIT;
        m.u.commit = (struct msg_commit){.generation = a->generation,
                                         .request = r->id,
                                         .run = r->run,
                                         .step = r->step};
        memcpy(m.u.commit.hash, r->hash, sizeof(m.u.commit.hash));
    } else {
        m.type = MSG_RESUMED;
        m.u.resumed = (struct msg_resumed){.generation = a->generation,
                                           .request = r->id,
                                           .run = r->run,
                                           .step = r->step};
    }
    agent_send(a, &m);
}

void requests_take(struct agent *a, uint32_t slot, const struct control *c)
{
    for (unsigned i = 0; i < AGENT_MAX_REQUESTS; i++) {
        struct request *r = &a->requests[i];

        if (r->id != 0) {
            continue;
        }
        *r = (struct request){.id = ++a->last_request,
                              .slot = slot,
                              .is_commit = c->type == CONTROL_COMMIT,
                              .run = c->run,
                              .step = c->step};
        memcpy(r->hash, c->hash, sizeof(r->hash));
        send_request(a, r);
        return;
    }
    agent_say(a, LOG_LEVEL_WARN,
              "rank %u asks for more decisions at once than %d: ignored",
              a->first_rank + slot, AGENT_MAX_REQUESTS);
}

void requests_decide(struct agent *a, const struct msg_decision *decision)
{
    struct control c = {.type = CONTROL_DECISION, .accepted = decision->accepted != 0};

    for (unsigned i = 0; i < AGENT_MAX_REQUESTS; i++) {
        struct request *r = &a->requests[i];

        if (r->id == 0 || r->id != decision->request ||
            decision->generation != a->generation) {
            continue;
        }
        c.is_commit = r->is_commit;
        c.run = r->run;
        c.step = r->step;
        memcpy(c.text, decision->text, sizeof(c.text));
        if (r->is_commit && c.accepted) {
            a->commit_run = r->run;
            a->commit_step = r->step;
            memcpy(a->commit_hash, r->hash, sizeof(a->commit_hash));
        }
        r->id = 0;
        if (a->workers[r->slot].state == WORKER_LIVE) {
            a->config.actions.control(a->config.actions.arg, r->slot, &c);
        }
        return;
    }
}

void requests_resend(struct agent *a)
{
    for (unsigned i = 0; i < AGENT_MAX_REQUESTS; i++) {
        if (a->requests[i].id != 0) {
            send_request(a, &a->requests[i]);
        }
    }
}
