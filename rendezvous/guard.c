#include "rendezvous/guard.h"

#include "rendezvous/output.h"
#include "rendezvous/permit.h"
#include "rendezvous/stream.h"

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/tls.h"

#include <stdio.h>

void guard_refused(struct guard *g, const struct connection *c, enum refusal why,
                   const char *text)
{
    uint64_t n_hidden;

    if (refusals_note(&g->refusals, c->peer, why, clock_ms(), &n_hidden)) {
        log_warn("refused a connection", "peer=%s cause=\"%s\" more=%llu all=%llu",
                 c->peer, text, (unsigned long long)n_hidden,
                 (unsigned long long)g->refusals.count[why]);
    }
}

/* Words for a peer that reads the agents' protocol, and others for the log. */
static void refuse_agent(struct guard *g, struct connection *c, enum refusal why,
                         const struct errmsg *text, const char *logged)
{
    struct msg m = {.type = MSG_REFUSED, .u.refused = {.exit_code = EXIT_RENDEZVOUS}};

    (void)snprintf(m.u.refused.text, sizeof(m.u.refused.text), "%s", text->text);
    connection_send_msg(c, &m);
    guard_refused(g, c, why, logged);
    connection_refuse(c);
}

void guard_secure(struct guard *g, struct connection *c)
{
    struct bytes alert = tls_no_secret_alert();

    if (g->tls) {
        stream_secure(c, g->tls);
        return;
    }
    connection_send(c, alert.data, alert.size);
    guard_refused(g, c, REFUSAL_NO_SECRET,
                  "it has a secret or a certificate, and this side has none: give both "
                  "the same (--rdzv-secret-file, ~/.config/ctrun/secret), or none");
    connection_refuse(c);
}

bool guard_admits_agent(struct guard *g, struct connection *c)
{
    const struct identity *who = stream_peer(c);
    struct errmsg msg = {""};

    if (g->tls && !who && !c->is_local) {
        (void)errmsg_set(&msg, ERR_REFUSED,
                         "this rendezvous lets only those in that have its secret or a "
                         "certificate of its CA, and none was shown: put the secret at "
                         "~/.config/ctrun/secret on the machine that asks, or name it "
                         "with --rdzv-secret-file (certificates: --tls-ca, --tls-cert, "
                         "--tls-key)");
        refuse_agent(g, c, REFUSAL_PLAIN, &msg,
                     "it has shown no key, and one is asked for here");
        return false;
    }
    if (permit_entry(who, &msg) < 0) {
        refuse_agent(g, c, REFUSAL_ROLE, &msg, msg.text);
        return false;
    }
    return true;
}

bool guard_admits_store(struct guard *g, struct connection *c)
{
    const struct identity *who = stream_peer(c);
    struct errmsg msg = {""};

    if (permit_store(who, &msg) < 0) {
        guard_refused(g, c, REFUSAL_ROLE, msg.text);
        connection_refuse(c);
        return false;
    }
    return true;
}
