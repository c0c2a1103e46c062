/* Events, and what ranks say, line by line as they come; what is followed is gone on with
 * when the server is back. Happy path: 1. the question; 2. each line is shown, and where
 * we stand is noted; 3. the answer's end. Failures: the server is gone: where its state
 * is kept (following.c), 4. it is looked for until it is there, or for long enough; 5.
 * again from 1, beginning where we stand (standing.c). */

#include "launcher/verbs/following.h"
#include "launcher/verbs/standing.h"
#include "launcher/verbs/verbs_core.h"

#include "common/clock.h"
#include "common/log.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINE = 4 * 1024 * 1024 };

struct lines {
    struct inquiry *inquiry;
    struct show_style style;
    struct buf rest;   /* of a line that has not come whole */
    bool is_unread;    /* stdout takes no more */
    bool is_nonsense;  /* what the server says */
    bool has_returned; /* … the server, and has said no line yet */
    struct following following;
    struct standing standing;
    char where[sizeof(((struct place *)0)->name)]; /* to look for the server */
};

/* ---- a line ---- */

bool lines_print(const struct verb_options *o, const struct show_style *style,
                 const json_t *line)
{
    struct buf text;
    bool is_note = false;
    bool is_put = true;

    if (o->json) {
        return printing_put_json(line);
    }
    buf_init(&text, MAX_LINE);
    if (o->kind == VERB_EVENTS) {
        show_event(line, style, &text);
    } else {
        show_log_line(line, style, &text, &is_note);
    }
    if (is_note) {
        char note[512];

        (void)snprintf(note, sizeof(note), "%.*s", (int)buf_len(&text),
                       (const char *)buf_bytes(&text));
        log_warn(note, "%s", "");
    } else {
        is_put = printing_put(&text);
    }
    buf_release(&text);
    return is_put;
}

/* What it says of its place is for us alone. */
static void note_place(struct lines *l, json_t *line)
{
    if (standing_take(&l->standing, line) && l->has_returned) {
        log_warn("another generation runs since the server is back: the last words of "
                 "the one before may be in its log files only",
                 "generation=%lld", (long long)value_number(line, "generation"));
    }
    l->has_returned = false;
    (void)json_object_del(line, "next"); /* else it was not there */
}

static bool take_line(struct lines *l, const uint8_t *data, size_t size)
{
    json_error_t error;
    json_t *line = json_loadb((const char *)data, size, 0, &error);

    l->is_nonsense = !json_is_object(line);
    if (!l->is_nonsense) {
        note_place(l, line);
        l->is_unread = !lines_print(&l->inquiry->options, &l->style, line);
    }
    json_decref(line);
    return !l->is_nonsense && !l->is_unread;
}

static bool on_lines(void *arg, struct bytes body)
{
    struct lines *l = arg;
    bool is_good = true;

    l->is_nonsense = buf_append(&l->rest, body.data, body.size) < 0;
    while (is_good && !l->is_nonsense && buf_len(&l->rest) > 0) {
        const uint8_t *data = buf_bytes(&l->rest);
        const uint8_t *end = memchr(data, '\n', buf_len(&l->rest));

        if (!end) {
            break;
        }
        is_good = take_line(l, data, (size_t)(end - data));
        buf_consume(&l->rest, (size_t)(end - data) + 1);
    }
    return is_good && !l->is_nonsense;
}

/* ---- a talk ---- */

static void on_met(void *arg, const struct msg_welcome *w)
{
    struct lines *l = arg;

    if (following_met(&l->following, w)) {
        l->has_returned = true;
        log_info("the server is back", "%s", "");
    }
}

static void ask_place(struct lines *l, struct place *place, struct talk_result *ret)
{
    struct question question = {.ask = asking_question(&l->inquiry->options),
                                .keys = &l->inquiry->keys,
                                .cluster = l->following.cluster,
                                .on_met = on_met,
                                .on_body = on_lines,
                                .arg = l};
    struct buf places;

    if (l->following.cluster != 0 && l->inquiry->options.kind == VERB_LOGS) {
        question.ask.after = 0; /* of who has said nothing yet all is new */
    }
    buf_init(&places, MSG_MAX_FRAME / 2);
    standing_tell(&l->standing, &question.ask, &places);
    buf_clear(&l->rest); /* what has come of a line comes again */
    talk_run(place, &question, ret);
    buf_release(&places);
}

/* Until one of the places is that of the server. Other servers' sockets beside its own
 * mean nothing; at an endpoint there is one. */
static void ask(struct lines *l, struct talk_result *ret)
{
    struct places *places = &l->inquiry->places;

    for (size_t i = 0; i < places->n; i++) {
        struct place *place = &places->place[i];

        ask_place(l, place, ret);
        if (ret->end == TALK_OTHER && place->host[0] == '\0') {
            ret->end = TALK_NOBODY;
            (void)snprintf(ret->text, sizeof(ret->text), "%.560s: %s", l->where,
                           "no socket there is that server's");
        }
        if (ret->end != TALK_NOBODY) {
            return;
        }
    }
}

/* ---- the server is gone ---- */

/* The endpoint, or the folder of its socket, which has another name in the next one. */
static void note_where(struct lines *l)
{
    const struct place *place = &l->inquiry->places.place[0];
    char *slash;

    memcpy(l->where, place->name, sizeof(l->where));
    slash = place->host[0] == '\0' ? strrchr(l->where, '/') : NULL;
    if (slash) {
        slash[slash == l->where] = '\0'; /* of "/x" is left "/" */
    }
}

static void find_again(struct lines *l, struct talk_result *ret)
{
    struct errmsg msg = {""};

    *ret = (struct talk_result){.end = TALK_NOBODY, .exit_code = EXIT_RENDEZVOUS};
    places_release(&l->inquiry->places);
    if (places_find(l->where, &l->inquiry->places, &msg) < 0) {
        (void)snprintf(ret->text, sizeof(ret->text), "%s", msg.text);
    }
}

/* False: nobody reads any more what is followed. */
static bool wait_for(uint64_t delay_ms)
{
    struct pollfd out = {.fd = STDOUT_FILENO};

    return poll(&out, 1, (int)delay_ms) != 1;
}

/* Its lines are whole. */
static int judge_answer(const struct lines *l)
{
    if (l->is_nonsense || buf_len(&l->rest) > 0) {
        log_error(ASKING_UNREADABLE, "server=%s", l->where);
        return EXIT_RENDEZVOUS;
    }
    return EXIT_SUCCESS;
}

static int judge(const struct lines *l, const struct talk_result *result)
{
    if (l->is_unread || result->end == TALK_UNREAD) {
        return EXIT_VERB_FAILED;
    }
    if (result->end == TALK_ANSWERED) {
        return judge_answer(l);
    }
    if (l->has_returned && result->end == TALK_SAID_NO &&
        result->exit_code == EXIT_NO_SUCH) {
        log_warn(result->text, "%s", ""); /* it has ended meanwhile */
        return EXIT_SUCCESS;
    }
    if (l->following.is_lost && result->end == TALK_NOBODY) {
        log_error("the server has not come back", "waited=%ds cause=\"%s\"",
                  FOLLOWING_PATIENCE_MS / 1000, result->text);
        return EXIT_RENDEZVOUS;
    }
    if (result->end == TALK_BROKEN && l->inquiry->options.follow) {
        log_warn(result->text, "%s", "");
        return EXIT_RENDEZVOUS;
    }
    log_error(result->text, "%s", "");
    return result->exit_code;
}

/* For how long to wait; FOLLOWING_NEVER: that was all. */
static uint64_t go_on(struct lines *l, const struct talk_result *result)
{
    bool was_lost = l->following.is_lost;
    uint64_t delay_ms = FOLLOWING_NEVER;

    if (l->inquiry->options.follow && !l->is_unread) {
        delay_ms = following_ended(&l->following, result->end, clock_ms());
    }
    if (l->following.is_lost && !was_lost) {
        log_warn("the connection is lost: looking for the server",
                 "server=%s at_most=%ds", l->where, FOLLOWING_PATIENCE_MS / 1000);
    }
    return delay_ms;
}

static int follow(struct lines *l)
{
    struct talk_result result = {.end = TALK_NOBODY};

    for (;;) {
        uint64_t delay_ms;

        ask(l, &result);
        delay_ms = go_on(l, &result);
        if (delay_ms == FOLLOWING_NEVER) {
            return judge(l, &result);
        }
        if (!wait_for(delay_ms)) {
            return EXIT_VERB_FAILED;
        }
        find_again(l, &result);
    }
}

int lines_run(struct inquiry *q)
{
    struct lines l = {.inquiry = q, .style = printing_style(&q->options)};
    int exit_code;

    buf_init(&l.rest, MAX_LINE);
    note_where(&l);
    exit_code = follow(&l);
    standing_release(&l.standing);
    buf_release(&l.rest);
    return exit_code;
}
