/* The exceptions that workers leave in files, read aside: a folder that does not answer
 * holds neither the loop, with the lease, nor for long the news of the failure. */

#include "launcher/error_file.h"
#include "launcher/supervisor_core.h"

#include "common/aside.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_MS = 2000 }; /* as for the output (output.c) */

struct error_reading {
    char path[PATH_MAX];
    struct worker_error error;
    bool is_found;
    uint64_t read_ms;
};

/* By a thread. */
static void read_and_remove(void *data)
{
    struct error_reading *r = data;

    r->is_found = error_file_read(r->path, &r->error);
    r->read_ms = clock_ms();
    (void)unlink(r->path); /* most workers write none */
}

static void release(void *data)
{
    struct error_reading *r = data;

    mem_free(r->error.bytes);
    mem_free(r);
}

/* What *end borrows lies in *r. */
static void take_error(struct slot *slot, const struct error_reading *r,
                       struct agent_end *end)
{
    struct supervisor *s = slot->supervisor;

    end->message = r->error.message;
    end->error = r->error.error;
    supervisor_watch_wall_clock(s);
    end->failed_ms = wall_watch_date(&s->wall_watch, r->read_ms, r->error.age_ms);
    if (r->error.bytes) {
        end->error_file = output_keep(s->output, slot->number, "error.json",
                                      r->error.bytes, r->error.size);
    }
}

static void say_not_read(struct slot *slot, char *ret, size_t size)
{
    struct supervisor *s = slot->supervisor;

    if (slot->status != 0) {
        (void)snprintf(ret, size,
                       "(what it may have left as its exception cannot be read: the "
                       "file system of %.256s has not answered for %d s)",
                       s->private_dir, LIMIT_MS / 1000);
    }
    if (!s->is_private_dir_mute) {
        log_warn("the exceptions of workers that fail cannot be read: the file system "
                 "does not answer",
                 "path=%s", s->private_dir);
    }
    s->is_private_dir_mute = true;
}

static void on_read(void *arg, void *data)
{
    struct slot *slot = arg;
    const struct error_reading *r = data;
    struct agent_end end = {.message = ""};
    char trouble[512] = "";

    if (slot->supervisor->is_ending) {
        return;
    }
    if (!r) {
        say_not_read(slot, trouble, sizeof(trouble));
        end.message = trouble;
    } else if (r->is_found) {
        take_error(slot, r, &end);
    }
    supervisor_tell_end(slot, &end);
}

void supervisor_read_error(struct slot *slot)
{
    struct aside_config config = {.loop = &slot->supervisor->loop,
                                  .limit_ms = LIMIT_MS,
                                  .work = read_and_remove,
                                  .release = release,
                                  .on_done = on_read,
                                  .arg = slot};
    struct error_reading *r;

    if (slot->error_file[0] == '\0') {
        supervisor_tell_end(slot, &(struct agent_end){.message = ""});
        return;
    }
    r = mem_zalloc(sizeof(*r));
    memcpy(r->path, slot->error_file, sizeof(r->path));
    slot->error_file[0] = '\0';  /* it will be gone */
    (void)aside_run(&config, r); /* the slot stays as long as the loop */
}
