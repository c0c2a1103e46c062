/* `ctrun logs`, the agent's side: pieces of the ranks' log files, read by a thread. Who
 * follows a rank is told the end of its log before the service is told that the node has
 * stopped: then nothing of it is lost when the job, and this ctrun with it, ends. */

#include "launcher/supervisor_core.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/str.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_FOLLOWED = 64,
    LAST_WORDS_MS = 500, /* a disk that hangs must not hold up a restart */
};

/* A stream that somebody follows. */
struct followed {
    struct log_question question;
    uint64_t asked_ms; /* 0: free */
};

struct supervisor_logs {
    struct supervisor *supervisor;
    struct log_reader *reader; /* owned */
    uv_timer_t timer;          /* bounds the last words */
    struct followed followed[MAX_FOLLOWED];
};

static bool names_a_file(const char *path)
{
    static const char end[] = ".log";
    size_t len = strlen(path);

    return len >= sizeof(end) && strcmp(path + len - (sizeof(end) - 1), end) == 0;
}

/* False: it has none, now (*ret "") or at all. */
static bool find_log(const struct slot *slot, const struct msg_inspect *m, char *ret,
                     size_t size, const char **ret_state)
{
    const struct supervisor *s = slot->supervisor;
    const char *path = output_log_path(s->output, slot->number);
    bool is_engine_file = names_a_file(path);
    bool is_errors = m->what == INSPECT_LOG_ERRORS;

    *ret_state = "";
    if (is_engine_file && m->generation != slot->generation) {
        *ret_state = INSPECT_GONE; /* it is another file by now */
        return false;
    }
    if (is_engine_file) { /* which has all */
        *ret_state = is_errors ? INSPECT_ENDED : "";
        return !is_errors && str_format(ret, size, "%s", path);
    }
    if (s->is_engine) {
        return false; /* it has not said hello */
    }
    if (s->logs.path[0] == '\0') {
        *ret_state = INSPECT_NO_LOG;
        return false;
    }
    return str_format(ret, size, "%s/attempt_%llu/%u/%s.log", s->logs.path,
                      (unsigned long long)m->generation, slot->number,
                      is_errors ? "stderr" : "stdout");
}

static void answer_state(const struct supervisor *s, const struct msg_inspect *m,
                         const char *state)
{
    struct msg_inspected answer = {.generation = m->generation,
                                   .request = m->request,
                                   .rank = m->rank,
                                   .what = m->what};

    if (m->offset != UINT64_MAX) {
        answer.offset = m->offset;
    }
    (void)snprintf(answer.state, sizeof(answer.state), "%s", state);
    agent_inspected(s->agent, &answer);
}

static void go_on_if_told(struct slot *slot)
{
    if (slot->n_last_words == 0) {
        supervisor_drained(slot);
    }
}

/* Its last words begin where that ends. */
static void note_place(struct supervisor_logs *l, const struct log_piece *piece)
{
    for (size_t i = 0; i < MAX_FOLLOWED; i++) {
        struct log_question *q = &l->followed[i].question;

        if (l->followed[i].asked_ms != 0 && q->request == piece->question->request) {
            q->from = piece->offset + piece->size;
        }
    }
}

static void on_piece(void *arg, const struct log_piece *piece)
{
    struct supervisor_logs *l = arg;
    struct supervisor *s = l->supervisor;
    const struct log_question *q = piece->question;
    struct slot *slot = &s->slots[q->slot];
    struct msg_inspected m = {
        .generation = q->generation,
        .request = q->request,
        .rank = q->rank,
        .what = INSPECT_LOG, /* of either kind: the request tells them apart */
        .more = piece->is_more,
        .offset = piece->offset,
        .body = {(const uint8_t *)piece->data, piece->size},
    };

    if (s->is_ending) {
        return;
    }
    if (q->is_final && !piece->is_more && (piece->is_at_end || q->is_last)) {
        (void)snprintf(m.state, sizeof(m.state), "%s", INSPECT_ENDED);
    }
    note_place(l, piece);
    agent_inspected(s->agent, &m);
    if (q->is_last && !piece->is_more && slot->n_last_words > 0) {
        slot->n_last_words--;
        go_on_if_told(slot);
    }
}

/* ---- who follows ---- */

static void note_follower(struct supervisor_logs *l, const struct log_question *q)
{
    struct followed *place = &l->followed[0];

    for (size_t i = 0; i < MAX_FOLLOWED; i++) {
        struct followed *f = &l->followed[i];

        if (f->asked_ms != 0 && f->question.request == q->request) {
            place = f;
            break;
        }
        place = f->asked_ms < place->asked_ms ? f : place;
    }
    place->question = *q;
    place->asked_ms = clock_ms();
}

static void on_patience(uv_timer_t *timer)
{
    struct supervisor_logs *l = timer->data;
    struct supervisor *s = l->supervisor;

    for (uint32_t i = 0; i < s->nproc && !s->is_ending; i++) {
        struct slot *slot = &s->slots[i];

        if (slot->n_last_words > 0) {
            slot->n_last_words = 0;
            supervisor_drained(slot);
        }
    }
}

static bool is_followed(const struct followed *f, const struct slot *slot)
{
    return f->asked_ms != 0 && f->question.slot == slot->number &&
           f->question.rank == slot->rank && f->question.generation == slot->generation;
}

bool supervisor_tell_last_words(struct slot *slot)
{
    struct supervisor *s = slot->supervisor;
    struct supervisor_logs *l = s->log_access;

    for (size_t i = 0; l && i < MAX_FOLLOWED && !s->is_ending; i++) {
        struct followed *f = &l->followed[i];

        if (is_followed(f, slot)) {
            f->question.is_final = true;
            f->question.is_last = true;
            slot->n_last_words += log_reader_ask(l->reader, &f->question);
            f->asked_ms = 0;
        }
    }
    if (slot->n_last_words > 0) {
        (void)uv_timer_start(&l->timer, on_patience, LAST_WORDS_MS, 0); /* callback */
    }
    return slot->n_last_words > 0;
}

/* ---- questions ---- */

/* With the first one: most jobs are never asked. */
static struct supervisor_logs *open_logs(struct supervisor *s)
{
    struct supervisor_logs *l = mem_zalloc(sizeof(*l));
    int rv = log_reader_new(&s->loop, on_piece, l, &l->reader);

    if (rv < 0) {
        mem_free(l);
        return NULL;
    }
    rv = uv_timer_init(&s->loop, &l->timer);
    ASSERT(rv == 0); /* it only sets fields */
    l->timer.data = l;
    l->supervisor = s;
    return l;
}

void supervisor_inspect_log(struct supervisor *s, uint32_t number,
                            const struct msg_inspect *m)
{
    const struct slot *slot = &s->slots[number];
    bool is_live = slot->is_open && slot->generation == m->generation;
    struct log_question q = {.generation = m->generation,
                             .request = m->request,
                             .slot = number,
                             .rank = m->rank,
                             .from = m->offset,
                             .is_final = !is_live || m->follow == INSPECT_ONCE};
    const char *state;

    if (!find_log(slot, m, q.path, sizeof(q.path), &state)) {
        answer_state(s, m, state);
        return;
    }
    s->log_access = s->log_access ? s->log_access : open_logs(s);
    if (s->log_access && is_live && m->follow != INSPECT_ONCE) {
        note_follower(s->log_access, &q);
    }
    if (m->follow == INSPECT_WILL_FOLLOW) {
        return;
    }
    if (!s->log_access || !log_reader_ask(s->log_access->reader, &q)) {
        answer_state(s, m, ""); /* too many ask: it will ask again */
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

void supervisor_close_logs(struct supervisor *s)
{
    struct supervisor_logs *l = s->log_access;

    if (l) {
        s->log_access = NULL;
        log_reader_stop(l->reader);
        uv_close((uv_handle_t *)&l->timer, on_timer_closed);
    }
}
