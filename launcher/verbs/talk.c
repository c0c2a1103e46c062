/* Happy path: 1. connect (its Unix socket is connected already); 2. OPERATOR; 3. WELCOME
 * says which server it is; 4. ASK; 5. ANSWER, piece by piece. The loop ends when the
 * connection is closed. Failures: no connection, or no WELCOME, within ANSWER_MS;
 * REFUSED; the connection's end before the answer's. */

#include "launcher/verbs/talk.h"

#include "launcher/rdzv/link_conn.h"

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/mem.h"

#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum {
    ANSWER_MS = 5000,
    LOOK_MS = 250,
    MAX_ADDRS = 8,
    UNREAD_MS = 60 * 1000, /* nobody is dropped sooner for not reading */
};

struct talk {
    uv_loop_t loop;
    uv_timer_t timer;       /* bounds the silence; of what is followed: is it read? */
    struct link_conn *conn; /* owned; NULL: closed */
    const struct place *place;
    const struct question *question;
    struct talk_result *result;
    struct addrinfo *addrs; /* owned */
    const struct addrinfo *next;
    uint64_t blocked_ms; /* the longest that an answer could not be printed */
    bool is_over;
};

static void end(struct talk *t, enum talk_end how, int exit_code)
{
    if (t->is_over) {
        return;
    }
    t->is_over = true;
    t->result->end = how;
    t->result->exit_code = exit_code;
    uv_close((uv_handle_t *)&t->timer, NULL);
    if (t->conn) {
        link_conn_close(t->conn);
        t->conn = NULL;
    }
}

static void end_with(struct talk *t, enum talk_end how, const char *text)
{
    if (!t->is_over) {
        (void)snprintf(t->result->text, sizeof(t->result->text), "%.560s: %s",
                       t->place->name, text);
    }
    end(t, how, EXIT_RENDEZVOUS);
}

static void be_patient(struct talk *t);

static void on_silence(uv_timer_t *timer)
{
    struct talk *t = timer->data;

    end_with(t, t->result->cluster != 0 ? TALK_BROKEN : TALK_NOBODY,
             "it does not answer");
}

/* Whoever follows a silent job into a pipe would not hear by writing that the pipe has
 * been closed: `ctrun events -f | head -1`. */
static void look_for_reader(uv_timer_t *timer)
{
    struct pollfd out = {.fd = STDOUT_FILENO};

    if (poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0) {
        end(timer->data, TALK_UNREAD, 0);
    }
}

static void be_patient(struct talk *t)
{
    if (t->is_over) {
        return;
    }
    (void)uv_timer_stop(&t->timer); /* always 0 */
    if (t->result->cluster == 0 || !t->question->ask.follow) {
        (void)uv_timer_start(&t->timer, on_silence, ANSWER_MS, 0); /* has a callback */
    } else {
        (void)uv_timer_start(&t->timer, look_for_reader, LOOK_MS, LOOK_MS); /* too */
    }
}

/* ---- messages ---- */

static bool was_seen(const struct talk *t, uint64_t cluster)
{
    for (size_t i = 0; i < t->question->n_seen; i++) {
        if (t->question->seen[i] == cluster) {
            return true;
        }
    }
    return false;
}

static int on_welcome(struct talk *t, const struct msg_welcome *w)
{
    struct msg m = {.type = MSG_ASK, .u.ask = t->question->ask};

    if (t->result->cluster != 0 || w->cluster == 0) {
        return ERR_PROTOCOL;
    }
    t->result->cluster = w->cluster;
    if (was_seen(t, w->cluster)) {
        end(t, TALK_SEEN, 0);
        return 0;
    }
    if (t->question->cluster != 0 && t->question->cluster != w->cluster) {
        end_with(t, TALK_OTHER,
                 "another server answers there now, which knows nothing of what was "
                 "followed");
        return 0;
    }
    if (t->question->on_met) {
        t->question->on_met(t->question->arg, w);
    }
    link_conn_send(t->conn, &m);
    return 0;
}

static int on_answer(struct talk *t, const struct msg_answer *answer)
{
    if (t->result->cluster == 0 || answer->request != t->question->ask.request) {
        return ERR_PROTOCOL;
    }
    if (answer->exit_code != 0) {
        (void)snprintf(t->result->text, sizeof(t->result->text), "%.*s",
                       (int)MIN(answer->body.size, (size_t)MSG_TEXT_MAX),
                       (const char *)answer->body.data);
        end(t, TALK_SAID_NO, (int)MIN(answer->exit_code, 255));
        return 0;
    }
    if ((answer->body.size > 0 &&
         !t->question->on_body(t->question->arg, answer->body)) ||
        !answer->more) {
        end(t, TALK_ANSWERED, 0);
    }
    return 0;
}

static int on_message(void *arg, const struct msg *m)
{
    struct talk *t = arg;

    if (t->is_over) {
        return 0;
    }
    be_patient(t);
    if (m->type == MSG_WELCOME) {
        int rv = on_welcome(t, &m->u.welcome);

        be_patient(t); /* what is followed may be silent from here on */
        return rv;
    }
    if (m->type == MSG_ANSWER) {
        uint64_t begun_ms = clock_ms();
        int rv = on_answer(t, &m->u.answer); /* waits for who reads what we print */

        t->blocked_ms = MAX(t->blocked_ms, clock_ms() - begun_ms);
        uv_update_time(&t->loop); /* so long, it was not the server that was silent */
        be_patient(t);
        return rv;
    }
    if (m->type == MSG_REFUSED) {
        end_with(t, TALK_REFUSED, m->u.refused.text);
        return 0;
    }
    return ERR_PROTOCOL;
}

/* ---- the connection ---- */

static void on_open(void *arg)
{
    struct talk *t = arg;
    struct msg m = {.type = MSG_OPERATOR, .u.operator= {.version = MSG_VERSION} };
    char host[128] = "";
    char name[64] = "";
    size_t size = sizeof(name);
    uv_passwd_t user;

    if (uv_os_get_passwd(&user) == 0) {
        (void)snprintf(name, size, "%.60s", user.username);
        uv_os_free_passwd(&user);
    } else {
        (void)snprintf(name, size, "uid %u", (unsigned)getuid());
    }
    (void)gethostname(host, sizeof(host) - 1); /* else without it */
    (void)snprintf(m.u.operator.who, sizeof(m.u.operator.who), "%s@%s", name, host);
    link_conn_send(t->conn, &m);
}

static void try_next(struct talk *t, int status);

/* One side does not let the other in. */
static void say_refused(struct talk *t)
{
    char own[300];
    char text[600];

    keys_describe(t->question->keys, own, sizeof(own));
    (void)snprintf(text, sizeof(text), "%s (this side's: %s)",
                   link_conn_trouble(t->conn), own);
    end_with(t, TALK_REFUSED, text);
}

/* After WELCOME. Of what acts, nobody knows whether it has come to pass. */
static void say_broken(struct talk *t)
{
    static const char *const acts[] = {"cancel", "drain", "drain_one"};
    char text[MSG_TEXT_MAX];

    if (t->blocked_ms >= UNREAD_MS) {
        (void)snprintf(text, sizeof(text),
                       "the connection has ended, maybe since nobody read what is "
                       "printed here for %llu s: who reads nothing for minutes is "
                       "dropped, and the rest is lost",
                       (unsigned long long)(t->blocked_ms / 1000));
        end_with(t, TALK_BROKEN, text);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
        if (strcmp(t->question->ask.verb, acts[i]) == 0) {
            end_with(t, TALK_BROKEN,
                     "the connection ended before the answer: what was asked for may "
                     "or may not have happened (ctrun events tells)");
            return;
        }
    }
    end_with(t, TALK_BROKEN,
             t->question->ask.follow ? "the server has ended"
                                     : "the connection ended before the answer");
}

static void on_end(void *arg, int status)
{
    struct talk *t = arg;
    bool was_open = link_conn_is_open(t->conn);

    if (status == ERR_REFUSED && !was_open) {
        say_refused(t);
    } else if (!was_open) {
        link_conn_close(t->conn);
        t->conn = NULL;
        try_next(t, status);
    } else if (t->result->cluster != 0) {
        say_broken(t);
    } else {
        end_with(t, TALK_NOBODY,
                 status == ERR_PROTOCOL || status == ERR_TOO_LARGE
                     ? "what answers there does not speak ctrun's protocol"
                     : "it closed the connection before it said who it is, and nothing "
                       "was asked of it: it is ending, or no rendezvous of ctrun, of "
                       "this version");
    }
}

static void on_pause(void *arg, bool is_paused)
{
    (void)arg;
    (void)is_paused; /* a few hundred bytes are all that we send */
}

static void on_closed(void *arg)
{
    (void)arg; /* nothing is left on the loop: it ends */
}

static struct link_conn_config make_config(struct talk *t)
{
    return (struct link_conn_config){.loop = &t->loop,
                                     .arg = t,
                                     .on_open = on_open,
                                     .on_message = on_message,
                                     .on_end = on_end,
                                     .on_pause = on_pause,
                                     .on_closed = on_closed};
}

static void try_next(struct talk *t, int status)
{
    struct link_conn_config config = make_config(t);
    struct errmsg msg = {""};

    if (t->next && keys_client(t->question->keys, &config.tls, &msg) < 0) {
        end_with(t, TALK_REFUSED, msg.text);
        return;
    }
    while (t->next && !t->conn && !t->is_over) {
        const struct addrinfo *ai = t->next;

        t->next = ai->ai_next;
        status = link_conn_open(&config, ai->ai_addr, &t->conn);
    }
    if (!t->conn) {
        end_with(t, TALK_NOBODY,
                 status == -ECONNREFUSED ? "nobody listens there" : err_text(status));
    }
}

/* The resolver blocks: there is nothing else to do. */
static void begin_tcp(struct talk *t)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char port[16];
    int rv;

    (void)snprintf(port, sizeof(port), "%d", t->place->port);
    rv = getaddrinfo(t->place->host, port, &hints, &t->addrs);
    if (rv != 0) {
        end_with(t, TALK_NOBODY, gai_strerror(rv));
        return;
    }
    t->next = t->addrs;
    try_next(t, -EHOSTUNREACH);
}

static void begin(struct talk *t, struct place *place)
{
    struct link_conn_config config = make_config(t);
    int fd = place->fd;
    int rv;

    if (fd < 0) {
        begin_tcp(t);
        return;
    }
    place->fd = -1;
    rv = link_conn_adopt(&config, fd, &t->conn);
    if (rv < 0) {
        end_with(t, TALK_NOBODY, err_text(rv));
    }
}

void talk_run(struct place *place, const struct question *q, struct talk_result *ret)
{
    struct talk *t = mem_zalloc(sizeof(*t));
    int rv;

    *ret = (struct talk_result){.end = TALK_NOBODY, .exit_code = EXIT_RENDEZVOUS};
    t->place = place;
    t->question = q;
    t->result = ret;
    rv = uv_loop_init(&t->loop);
    rv = rv < 0 ? rv : uv_timer_init(&t->loop, &t->timer);
    if (rv < 0) {
        (void)snprintf(ret->text, sizeof(ret->text), "event loop: %s", err_text(rv));
        mem_free(t);
        return;
    }
    t->timer.data = t;
    be_patient(t);
    begin(t, place);
    (void)uv_run(&t->loop, UV_RUN_DEFAULT); /* 0: it is empty */
    rv = uv_loop_close(&t->loop);
    ASSERT(rv == 0 && t->is_over);
    if (t->addrs) {
        freeaddrinfo(t->addrs);
    }
    mem_free(t);
}
