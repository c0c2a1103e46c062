#include "launcher/followed.h"

#include <stdio.h>

#define OLDER                                                      \
    "an older state of the service answers there, or a copy that " \
    "went its own way "

/* What has the start that was seen, with all transactions that were, has whatever was
 * heard. Its own numbers say less: a copy's grow, too. */
void followed_object(const struct followed *f, const struct msg_welcome *w, char *ret,
                     size_t size)
{
    ret[0] = '\0';
    if (f->start == 0) {
        return;
    }
    if (w->cluster != f->cluster) {
        (void)snprintf(ret, size,
                       "another service answers there (cluster %016llx, not %016llx)",
                       (unsigned long long)w->cluster, (unsigned long long)f->cluster);
    } else if (w->lacks) {
        (void)snprintf(ret, size,
                       OLDER "(it lacks start %llu, %016llx, that this node has seen)",
                       (unsigned long long)f->boot, (unsigned long long)f->start);
    } else if (w->had < f->kept) {
        (void)snprintf(ret, size,
                       OLDER "(it has transaction %llu of start %llu, this node has "
                             "seen %llu)",
                       (unsigned long long)w->had, (unsigned long long)f->boot,
                       (unsigned long long)f->kept);
    } else if (w->generation < f->generation) {
        (void)snprintf(ret, size,
                       OLDER "(generation %llu of job %s, this node has seen %llu)",
                       (unsigned long long)w->generation, f->job,
                       (unsigned long long)f->generation);
    }
}
