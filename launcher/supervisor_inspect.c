/* The service asks what the process of a rank does: threads look, the loop answers. */

#include "launcher/inspect.h"
#include "launcher/supervisor_core.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAX_INSPECTIONS = 16 }; /* at once: whoever asks for more gets no answer */

struct inspection {
    uv_work_t work;
    struct supervisor *supervisor;
    struct msg_inspect asked;
    pid_t pid;
    char state[INSPECT_STATE_SIZE];
    char stack[INSPECT_STACK_SIZE];
};

/* By a thread. */
static void find_out(uv_work_t *work)
{
    struct inspection *i = work->data;

    if (i->asked.what == INSPECT_STACK) {
        inspect_stack(i->pid, INSPECT_STACK_MS, i->stack);
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
    i->asked = *m;
    i->pid = (pid_t)s->slots[number].pid;
    s->n_inspections++;
    if (uv_queue_work(&s->loop, &i->work, find_out, on_found_out) < 0) {
        UNREACHABLE(); /* it fails without a function only */
    }
}
