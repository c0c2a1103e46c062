/* The service's configuration file, which a SIGHUP reads again while jobs run: it is
 * taken as a whole or refused with a line, and what is taken is in its bounds. */

#include "rendezvous/options.h"
#include "rendezvous/reload.h"

#include "common/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for this name */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct rendezvous_options *o)
{
    struct server_limits limits = rendezvous_options_limits(o);

    ASSERT(o->n_listen >= 1 && o->n_listen <= RENDEZVOUS_MAX_LISTEN);
    ASSERT(o->lease_ms >= 100 && o->max_connections >= 1);
    ASSERT(limits.store_max_bytes > 0 && limits.job_max_bytes > 0);
    ASSERT(limits.accept_per_s > 0);
    ASSERT(limits_max_memory(&limits) > limits.store_max_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rendezvous_options now, read;
    char name[] = "ctrun-rendezvous";
    char flag[] = "--config";
    char path[64];
    char *none[] = {name};
    char *from_file[] = {name, flag, path};
    int fd = memfd_create("rendezvous.yaml", MFD_CLOEXEC);
    struct errmsg msg = {""};
    struct reload reload;

    ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ASSERT(rendezvous_options_parse(1, none, &now, &msg) == 0);
    if (rendezvous_options_parse(3, from_file, &read, &msg) < 0) {
        ASSERT(msg.text[0] != '\0' && !strchr(msg.text, '\n'));
    } else {
        check(&read);
        reload_take(&now, &read, &reload);
        check(&now);
        reload_take(&now, &read, &reload);
        ASSERT(reload.changed[0] == '\0'); /* what could change has */
    }
    ASSERT(close(fd) == 0);
    return 0;
}
