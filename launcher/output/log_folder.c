#include "launcher/output/log_folder.h"

#include "launcher/path.h"

#include "common/log.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    UNASKED_MAX = 8 * 1024 * 1024, /* of a file that nobody asked for; twice, with the
                                      older one */
    ID_MAX = 100,                  /* characters of the id that a name shows */
    WALK_FILES = 8,
};

/* Has anything been said of files but where they are? */
static bool is_asked(const struct launch_options *o)
{
    return o->redirects.redirects || o->redirects.tee || o->filters[0] ||
           o->filters[1] || o->log_max_size > 0;
}

static int choose_in_tmp(const struct launch_options *o, const char *id,
                         struct log_folder *ret, struct errmsg *msg)
{
    const char *tmp =
        getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe): nobody sets it */

    ret->is_unasked = !is_asked(o);
    if (ret->is_unasked) {
        ret->max_size = UNASKED_MAX;
    }
    (void)snprintf(ret->path, sizeof(ret->path), "%s/ctrun_%s_XXXXXX",
                   tmp && *tmp ? tmp : "/tmp", id);
    if (mkdtemp(ret->path)) {
        if (!ret->is_unasked) {
            log_info("the workers' output is kept", "path=%s", ret->path);
        }
        return 0;
    }
    if (!ret->is_unasked) {
        return errmsg_set(msg, -errno,
                          "cannot make a folder for the workers' output, %s: %s; name "
                          "one by --log-dir",
                          ret->path, err_text(-errno));
    }
    log_warn("no folder for the workers' output: it goes to the console only",
             "path=%s error=\"%s\"", ret->path, err_text(-errno));
    ret->path[0] = '\0';
    return 0;
}

int log_folder_choose(const struct launch_options *options, bool is_engine,
                      uint32_t random, struct log_folder *ret, struct errmsg *msg)
{
    const char *dir = options->log_dir;
    size_t n = strnlen(options->rdzv_id, ID_MAX);
    char id[ID_MAX + 1];
    int rv;

    *ret = (struct log_folder){.max_size = options->log_max_size};
    if (options->redirects.has_no_files || (is_engine && dir[0] == '\0')) {
        return 0;
    }
    memcpy(id, options->rdzv_id, n);
    id[n] = '\0';
    for (char *c = strchr(id, '/'); c; c = strchr(c, '/')) {
        *c = '_';
    }
    if (dir[0] == '\0') {
        return choose_in_tmp(options, id, ret, msg);
    }
    (void)snprintf(ret->path, sizeof(ret->path), "%s/%s_%08x", dir, id, random);
    if (is_engine) { /* made all the same if the program turns out to be none */
        log_info("--log-dir has no effect: ctrun-worker keeps its logs in its run "
                 "directory",
                 "%s", "");
        return 0;
    }
    rv = path_make_folders(ret->path, strlen(ret->path));
    return rv < 0 ? errmsg_set(msg, rv, "--log-dir: cannot make the folder %s: %s",
                               ret->path, err_text(rv))
                  : 0;
}

static int on_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    (void)remove(path); /* what somebody else put there may stay */
    return 0;
}

void log_folder_end(const struct log_folder *f, bool all_ended_well)
{
    if (f->path[0] == '\0' || !f->is_unasked) {
        return;
    }
    if (rmdir(f->path) < 0 && errno == ENOTEMPTY && all_ended_well) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): safe without FTW_CHDIR */
        (void)nftw(f->path, on_entry, WALK_FILES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    }
}
