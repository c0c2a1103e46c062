/* The service asks what the process of a rank does: threads look, the loop answers. One
 * that can tell its stack itself (a script, in Python's terms) is asked by the signal
 * that it has named, before gdb stops it. */

#include "launcher/inspect.h"
#include "launcher/supervisor_core.h"

#include "common/mem.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_INSPECTIONS = 16, /* at once: whoever asks for more gets no answer */
    ANSWER_MS = 500,      /* for a process to tell its stack */
};

struct inspection {
    uv_work_t work;
    uv_timer_t timer;
    struct supervisor *supervisor;
    const struct slot *slot;
    struct msg_inspect asked;
    pid_t pid;
    char state[INSPECT_STATE_SIZE];
    char stack[CHANNEL_STACK_MAX + INSPECT_STACK_SIZE];
};

/* By a thread. */
static void find_out(uv_work_t *work)
{
    struct inspection *i = work->data;

    if (i->asked.what == INSPECT_STACK) {
        inspect_stack(i->pid, INSPECT_STACK_MS, i->stack + strlen(i->stack));
    } else {
        inspect_state(i->pid, i->state);
    }
}

static void on_found_out(uv_work_t *work, int status)
{
    struct inspection *i = work->data;
    struct supervisor *s = i->supervisor;
    struct msg_inspected m = {
        .generation = i->asked.generation,
        .request = i->asked.request,
        .rank = i->asked.rank,
        .what = i->asked.what,
        .body = {(const uint8_t *)i->stack, strlen(i->stack)},
    };

    (void)status; /* nobody cancels it */
    s->n_inspections--;
    if (!s->is_ending) {
        memcpy(m.state, i->state, sizeof(i->state));
        agent_inspected(s->agent, &m);
    }
    mem_free(i);
}

static void start_thread(struct inspection *i)
{
    if (uv_queue_work(&i->supervisor->loop, &i->work, find_out, on_found_out) < 0) {
        UNREACHABLE(); /* it fails without a function only */
    }
}

static void on_timer_closed(uv_handle_t *timer)
{
    start_thread(timer->data);
}

/* What has come is all that comes. */
static void on_answer_due(uv_timer_t *timer)
{
    struct inspection *i = timer->data;
    const struct slot *slot = i->slot;

    if (slot->channel && slot->pid == (uint32_t)i->pid) {
        (void)snprintf(i->stack, CHANNEL_STACK_MAX, "%s", channel_stack(slot->channel));
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
    i->work.data = i;
    i->supervisor = s;
    i->slot = &s->slots[number];
    i->asked = *m;
    i->pid = (pid_t)s->slots[number].pid;
    s->n_inspections++;
    if (m->what != INSPECT_STACK || !ask_itself(i)) {
        start_thread(i);
    }
}
