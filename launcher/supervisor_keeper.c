/* Whether the keeper is alive (keeper_watch.h): asked for as long as the loop runs. */

#include "launcher/supervisor_core.h"

#include "common/log.h"

static void on_ask(uv_timer_t *timer)
{
    struct supervisor *s = timer->data;

    supervisor_on_keeper(s); /* what it has said while we were held up ourselves */
    if (s->is_ending || !uv_is_active((const uv_handle_t *)timer)) {
        return; /* it is gone */
    }
    switch (keeper_watch_ask(&s->keeper_watch, keeper_state(s->keeper))) {
    case KEEPER_LEAVE:
        break;
    case KEEPER_CONTINUE:
        keeper_continue(s->keeper);
        break;
    case KEEPER_KILL:
        log_error("the keeper of the workers stays stopped: killed it, and with it the "
                  "workers of this node",
                  "keeper=%d", (int)s->keeper->pid);
        keeper_end(s->keeper);
        break;
    case KEEPER_TELL:
        log_warn(
            "the keeper of the workers does not answer: is this machine overloaded? "
            "Until it does, no worker can be stopped",
            "keeper=%d state=%c", (int)s->keeper->pid, keeper_state(s->keeper));
        break;
    }
    keeper_ask(s->keeper);
}

int supervisor_watch_keeper(struct supervisor *s)
{
    int rv = uv_timer_init(&s->loop, &s->keeper_timer);

    s->keeper_timer.data = s;
    return rv < 0 ? rv
                  : uv_timer_start(&s->keeper_timer, on_ask, KEEPER_WATCH_MS,
                                   KEEPER_WATCH_MS);
}
