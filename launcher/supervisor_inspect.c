/* The service asks what the process of a rank does: threads look (aside.h), the loop
 * answers. One that can tell its stack itself (a script, in Python's terms) is asked by
 * the signal that it has named, before gdb stops it. Nobody waits for either at the
 * end. */

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
    LIMIT_MS = INSPECT_STACK_MS + 500,
};

struct inspection {
    struct inspection *next; /* of the supervisor's */
    struct supervisor *supervisor;
    const struct slot *slot;
    struct msg_inspect asked;
    pid_t pid;
    uv_timer_t timer;             /* while the process is asked itself … */
    char said[CHANNEL_STACK_MAX]; /* … and what it has said */
    struct aside *aside;          /* while a thread looks; NULL: not yet */
};

/* What a thread is to find out. */
struct finding {
    pid_t pid;
    bool is_stack; /* else the state */
    char state[INSPECT_STATE_SIZE];
    char stack[INSPECT_STACK_SIZE];
};

/* By a thread. */
static void find_out(void *data)
{
    struct finding *f = data;

    if (f->is_stack) {
        inspect_stack(f->pid, INSPECT_STACK_MS, f->stack);
    } else {
        inspect_state(f->pid, f->state);
    }
}

static void unlink_it(struct inspection *i)
{
    struct inspection **at = &i->supervisor->inspections;

    while (*at != i) {
        at = &(*at)->next;
    }
    *at = i->next;
}

static void answer(const struct inspection *i, const struct finding *f)
{
    char stack[CHANNEL_STACK_MAX + INSPECT_STACK_SIZE];
    struct msg_inspected m = {
        .generation = i->asked.generation,
        .request = i->asked.request,
        .rank = i->asked.rank,
        .what = i->asked.what,
    };

    (void)snprintf(stack, sizeof(stack), "%s%s", i->said, f->stack);
    m.body = (struct bytes){(const uint8_t *)stack, strlen(stack)};
    memcpy(m.state, f->state, sizeof(f->state));
    agent_inspected(i->supervisor->agent, &m);
}

/* Where nothing comes back, a thread is lost, and its place among the inspections. */
static void on_found_out(void *arg, void *data)
{
    struct inspection *i = arg;

    unlink_it(i);
    if (data) {
        i->supervisor->n_inspections--;
        answer(i, data);
    }
    mem_free(i);
}

static void look(struct inspection *i)
{
    const struct aside_config config = {.loop = &i->supervisor->loop,
                                        .limit_ms = LIMIT_MS,
                                        .work = find_out,
                                        .release = mem_free,
                                        .on_done = on_found_out,
                                        .arg = i};
    struct finding *f = mem_zalloc(sizeof(*f));

    f->pid = i->pid;
    f->is_stack = i->asked.what == INSPECT_STACK;
    i->aside = aside_run(&config, f);
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct inspection *i = timer->data;

    if (i->supervisor->is_ending) {
        unlink_it(i);
        mem_free(i);
    } else {
        look(i);
    }
}

/* What has come is all that comes. */
static void on_answer_due(uv_timer_t *timer)
{
    struct inspection *i = timer->data;
    const struct slot *slot = i->slot;

    if (slot->channel && slot->pid == (uint32_t)i->pid) {
        (void)snprintf(i->said, sizeof(i->said), "%s", channel_stack(slot->channel));
    }
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
    if (m->what != INSPECT_STACK || !ask_itself(i)) {
        look(i);
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
