#include "rendezvous/drained.h"

#include "common/mem.h"

#include <stdio.h>

void drained_release(struct drained *d)
{
    mem_free(d->agent);
    *d = (struct drained){0};
}

void drained_note(struct drained *d, uint64_t id, const char *by)
{
    struct drained_agent *to;

    if (!d->agent) {
        d->agent = mem_array(DRAINED_MAX, sizeof(*d->agent));
    }
    to = &d->agent[d->n++ % DRAINED_MAX];
    to->id = id;
    (void)snprintf(to->by, sizeof(to->by), "%s", by);
}

void drained_take(struct drained *d, uint64_t id, char ret[RECORD_DRAINED_MAX])
{
    for (size_t i = 0; i < MIN(d->n, (size_t)DRAINED_MAX); i++) {
        struct drained_agent *a = &d->agent[i];

        if (a->by[0] != '\0' && a->id == id) {
            (void)snprintf(ret, RECORD_DRAINED_MAX, "%s", a->by);
            a->by[0] = '\0';
        }
    }
}
