#ifndef RENDEZVOUS_RELOAD_H
#define RENDEZVOUS_RELOAD_H

/* PURE. What a second reading of the configuration (SIGHUP) changes: some of it at once,
 * the rest when the service is started anew. */

#include "rendezvous/options.h"

struct reload {
    char changed[512]; /* keys whose new values hold from now on; "": none */
    char fixed[512];   /* keys whose old ones do, until a restart; "": none */
};

/* Takes over into `now` what can change. */
void reload_take(struct rendezvous_options *now, const struct rendezvous_options *read,
                 struct reload *ret);

#endif
