/* The service asks what the process of a rank does: threads look (aside.h), the loop
 * answers. Where it is comes in two pieces, so that nothing waits for gdb:
 *
 *   1. one that can tell its stack itself (a script, in Python's terms) is asked by the
 *      signal that it has named, before gdb stops it;
 *   2. what it has said, and /proc's part, are the first piece;
 *   3. gdb's is the second, or that it was too slow. What has been said late goes along.
 *
 * Where a restart waits for the answer and a stack is at hand, gdb is hurried. At the end
 * nobody waits for any of them. */

#include "launcher/inspect.h"
#include "launcher/supervisor_core.h"

#include "common/aside.h"
#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_INSPECTIONS = 16, /* at once: whoever asks for more gets no answer */
    ANSWER_MS = 500,      /* for a process to tell its stack */
    END_MS = 1500,        /* for a gdb that is killed, to be gone */
    LIMIT_MS = INSPECT_STACK_MS + END_MS,
};

struct inspection {
    struct inspection *next; /* of the supervisor's */
    struct supervisor *supervisor;
    const struct slot *slot;
    struct msg_inspect asked;
    pid_t pid;
    bool is_asked;                /* where it is … */
    uv_timer_t timer;             /* … while it is waited for … */
    char said[CHANNEL_STACK_MAX]; /* … and this is what it has said */
    unsigned gdb_ms;              /* gdb's time */
    struct aside *aside;          /* while a thread looks; NULL: not yet */
};

/* What a thread is to find out. */
struct finding {
    pid_t pid;
    unsigned gdb_ms;
    char state[INSPECT_STATE_SIZE];
    char stack[INSPECT_STACK_SIZE];
};

/* These two by a thread. */

static void find_state(void *data)
{
    struct finding *f = data;

    inspect_state(f->pid, f->state);
}

static void find_stack(void *data)
{
    struct finding *f = data;

    inspect_stack(f->pid, f->gdb_ms, f->stack);
}

static void unlink_it(struct inspection *i)
{
    struct inspection **at = &i->supervisor->inspections;

    while (*at != i) {
        at = &(*at)->next;
    }
    *at = i->next;
}

/* Where nothing comes back, a thread is lost, and its place among the inspections. */
static void end_it(struct inspection *i, bool is_lost)
{
    unlink_it(i);
    i->supervisor->n_inspections -= is_lost ? 0 : 1;
    mem_free(i);
}

static struct msg_inspected answer_to(const struct inspection *i)
{
    return (struct msg_inspected){
        .generation = i->asked.generation,
        .request = i->asked.request,
        .rank = i->asked.rank,
        .what = i->asked.what,
    };
}

/* What it has told since it was asked. */
static void hear(struct inspection *i)
{
    const struct slot *slot = i->slot;

    if (i->is_asked && i->said[0] == '\0' && slot->channel &&
        slot->pid == (uint32_t)i->pid) {
        (void)snprintf(i->said, sizeof(i->said), "%s", channel_stack(slot->channel));
    }
}

static void answer_piece(const struct inspection *i, const char *said, const char *text,
                         bool is_first)
{
    struct msg_inspected m = answer_to(i);
    char stack[CHANNEL_STACK_MAX + INSPECT_STACK_SIZE];

    (void)snprintf(stack, sizeof(stack), "%s%s", said, text);
    m.more = is_first;
    m.body = (struct bytes){(const uint8_t *)stack, strlen(stack)};
    agent_inspected(i->supervisor->agent, &m);
}

static void look(struct inspection *i, uint64_t limit_ms, void (*find)(void *data),
                 void (*on_done)(void *arg, void *data))
{
    const struct aside_config config = {.loop = &i->supervisor->loop,
                                        .limit_ms = limit_ms,
                                        .work = find,
                                        .release = mem_free,
                                        .on_done = on_done,
                                        .arg = i};
    struct finding *f = mem_zalloc(sizeof(*f));

    f->pid = i->pid;
    f->gdb_ms = i->gdb_ms;
    i->aside = aside_run(&config, f);
}

static void on_state(void *arg, void *data)
{
    struct inspection *i = arg;
    const struct finding *f = data;
    struct msg_inspected m = answer_to(i);

    if (f) {
        memcpy(m.state, f->state, sizeof(f->state));
        agent_inspected(i->supervisor->agent, &m);
    }
    end_it(i, !f);
}

static void on_stack(void *arg, void *data)
{
    struct inspection *i = arg;
    const struct finding *f = data;
    bool has_said = i->said[0] != '\0';
    char note[64];

    inspect_no_stack(i->gdb_ms, note, sizeof(note));
    hear(i);
    answer_piece(i, has_said ? "" : i->said, f ? f->stack : note, false);
    end_it(i, !f);
}

static void look_where_it_is(struct inspection *i)
{
    bool is_waited_for = i->supervisor->options->on_hang == ON_HANG_RESTART;
    char kernel[INSPECT_KERNEL_SIZE];

    hear(i);
    inspect_kernel(i->pid, kernel);
    if (i->said[0] != '\0' || kernel[0] != '\0') {
        answer_piece(i, i->said, kernel, true);
    }
    i->gdb_ms =
        i->said[0] != '\0' && is_waited_for ? INSPECT_HURRY_MS : INSPECT_STACK_MS;
    look(i, i->gdb_ms + END_MS, find_stack, on_stack);
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct inspection *i = timer->data;

    if (i->supervisor->is_ending) {
        unlink_it(i);
        mem_free(i);
    } else {
        look_where_it_is(i);
    }
}

static void on_answer_due(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, on_timer_closed);
}

/* False: it cannot tell. One that has become another program since it said that it can
 * would die of the signal. */
static bool ask_itself(struct inspection *i)
{
    struct channel *channel = i->slot->channel;
    int signal = channel ? channel_ask_stack(channel) : 0;
    int rv;

    if (signal == 0 || !inspect_catches(i->pid, signal) || kill(i->pid, signal) < 0) {
        return false;
    }
    rv = uv_timer_init(&i->supervisor->loop, &i->timer);
    rv = rv < 0 ? rv : uv_timer_start(&i->timer, on_answer_due, ANSWER_MS, 0);
    ASSERT(rv == 0); /* they only set fields */
    i->is_asked = true;
    i->timer.data = i;
    return true;
}

void supervisor_inspect(struct supervisor *s, uint32_t number,
                        const struct msg_inspect *m)
{
    struct inspection *i;

    if (s->n_inspections >= MAX_INSPECTIONS || s->slots[number].pid == 0 ||
        (m->what != INSPECT_HANG && m->what != INSPECT_STACK)) {
        return;
    }
    i = mem_zalloc(sizeof(*i));
    i->supervisor = s;
    i->slot = &s->slots[number];
    i->asked = *m;
    i->pid = (pid_t)s->slots[number].pid;
    i->next = s->inspections;
    s->inspections = i;
    s->n_inspections++;
    if (m->what == INSPECT_HANG) {
        look(i, LIMIT_MS, find_state, on_state);
    } else if (!ask_itself(i)) {
        look_where_it_is(i);
    }
}

void supervisor_inspect_no_more(struct supervisor *s)
{
    struct inspection *next;

    for (struct inspection *i = s->inspections; i; i = next) {
        next = i->next;
        if (i->aside) {
            aside_drop(i->aside);
            unlink_it(i);
            mem_free(i);
        } else if (!uv_is_closing((uv_handle_t *)&i->timer)) {
            uv_close((uv_handle_t *)&i->timer, on_timer_closed);
        }
    }
}
