#include "rendezvous/event.h"

#include "common/log.h"

#include <stdio.h>

enum { MAX_WHY = 512 };

/* One line, whatever is in it: it stands in quotes. */
static void clean(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f || *text == '"') {
            *text = *text == '"' ? '\'' : ' ';
        }
    }
}

void event_log(void *arg, const struct job_event *e)
{
    unsigned long long generation = e->generation;
    char why[MAX_WHY];

    (void)arg;
    (void)snprintf(why, sizeof(why), "%s", e->why ? e->why : "");
    clean(why);
    switch (e->kind) {
    case JOB_HAS_FORMED:
        log_info("job formed", "job=%s generation=%llu nodes=%zu ranks=%u", e->job,
                 generation, e->nodes, e->ranks);
        break;
    case JOB_RESTARTS:
        log_info("job restarting", "job=%s generation=%llu cause=\"%s\"", e->job,
                 generation, why);
        break;
    case JOB_HAS_FAILED:
        log_info("job failed", "job=%s generation=%llu exit_code=%u cause=\"%s\"",
                 e->job, generation, e->exit_code, why);
        break;
    case JOB_IS_DONE:
        log_info("job done", "job=%s generation=%llu", e->job, generation);
        break;
    }
}
