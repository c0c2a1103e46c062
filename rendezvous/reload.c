#include "rendezvous/reload.h"

#include "common/options.h"

#include <stdio.h>
#include <string.h>

/* Everything that is not here waits for a restart: what a key means is known to who
 * reads it at the start. */
static bool can_change(const char *name)
{
    static const char *const names[] = {"log-level", "max-connections", "store-max-mib",
                                        "job-max-mib", "accept-rate"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void add(char *list, size_t size, const char *name)
{
    size_t len = strlen(list);

    (void)snprintf(list + len, size - len, "%s%s", len > 0 ? "," : "", name);
}

void reload_take(struct rendezvous_options *now, const struct rendezvous_options *read,
                 struct reload *ret)
{
    const struct options *table = rendezvous_options_table();

    *ret = (struct reload){"", ""};
    for (size_t i = 0; i < table->n; i++) {
        const char *name = table->specs[i].name;

        if (now->given[i] == read->given[i]) {
            continue;
        }
        if (can_change(name)) {
            now->given[i] = read->given[i];
            add(ret->changed, sizeof(ret->changed), name);
        } else {
            add(ret->fixed, sizeof(ret->fixed), name);
        }
    }
    now->log_level = read->log_level;
    now->max_connections = read->max_connections;
    now->store_max_mib = read->store_max_mib;
    now->job_max_mib = read->job_max_mib;
    now->accept_rate = read->accept_rate;
}
