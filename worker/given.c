#include "worker/given.h"

#include "worker/checkpoint/manifest.h"
#include "worker/model/llmc_model.h"
#include "worker/trainer.h"

#include "common/mem.h"
#include "common/str.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The newest checkpoint in `dir`, or in the folder `inner` of it. */
static bool find_newest(const char *dir, const char *inner,
                        struct checkpoint_entry *ret)
{
    struct checkpoint_entry *entries = NULL;
    char path[CHECKPOINT_PATH_MAX];
    size_t n = 0;
    bool found = str_format(path, sizeof(path), "%s%s", dir, inner) &&
                 checkpoint_list(path, &entries, &n, NULL) == 0 && n > 0;

    if (found) {
        *ret = entries[0];
    }
    mem_free(entries);
    return found;
}

/* A path with a slash at its end gives none twice. */
static int check_folder(const char *path, struct errmsg *msg)
{
    struct checkpoint_entry newest;
    char dir[CHECKPOINT_PATH_MAX];
    char manifest[CHECKPOINT_PATH_MAX];
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    if (!str_format(dir, sizeof(dir), "%.*s", (int)MIN(len, sizeof(dir)), path) ||
        !str_format(manifest, sizeof(manifest), "%s/" MANIFEST_NAME, dir)) {
        return errmsg_set(msg, ERR_TOO_LARGE, "the path is too long");
    }
    if (access(manifest, F_OK) == 0) {
        return 0;
    }
    if (errno != ENOENT) { /* it may be there */
        int err = -errno;

        return errmsg_set(msg, err, MANIFEST_NAME ": %s", err_text(err));
    }
    if (find_newest(dir, "", &newest) || find_newest(dir, "/ckpt", &newest)) {
        return errmsg_set(msg, ERR_INVALID,
                          "holds checkpoints, but is none: give one of them, the "
                          "newest is %s",
                          newest.path);
    }
    return errmsg_set(msg, ERR_INVALID, "no checkpoint: " MANIFEST_NAME " is missing");
}

static int check_path(const char *path, const char *wrong_file, struct errmsg *msg)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        int err = -errno;

        return errmsg_set(msg, err, "%s", err_text(err));
    }
    return S_ISDIR(st.st_mode) ? check_folder(path, msg)
                               : errmsg_set(msg, ERR_INVALID, "%s", wrong_file);
}

int given_is_checkpoint(const char *path, struct errmsg *msg)
{
    return check_path(path, "a file, not the folder of a checkpoint", msg);
}

int given_is_weights(const char *path, struct errmsg *msg)
{
    int is_llmc = llmc_model_is(path);

    if (is_llmc < 0) {
        return errmsg_set(msg, is_llmc, "%s", err_text(is_llmc));
    }
    return is_llmc ? 0
                   : check_path(path,
                                "neither an llm.c model file nor a checkpoint's folder",
                                msg);
}

/* Where run.dir itself is unusable, opening it says so. */
static bool has_own_checkpoints(const struct trainer *t)
{
    struct checkpoint_entry newest;

    return find_newest(t->config->checkpoint.dir, "", &newest);
}

int given_check(const struct trainer *t, struct errmsg *msg)
{
    const char *resume = t->config->checkpoint.resume;
    const char *from = t->config->model.init_from;
    bool is_auto = strcmp(resume, "auto") == 0;
    struct control start;
    int rv = 0;

    control_client_start(t->control, &start);
    if (start.hash[0] != '\0' || (is_auto && has_own_checkpoints(t))) {
        return 0;
    }
    if (!is_auto && strcmp(resume, "never") != 0) { /* then init_from is not read */
        if (trainer_leads(t)) {
            rv = given_is_checkpoint(resume, msg);
        }
        return rv < 0 ? errmsg_wrap(msg, rv, "checkpoint.resume=%s", resume) : 0;
    }
    if (from[0] != '\0') {
        rv = given_is_weights(from, msg);
    }
    return rv < 0 ? errmsg_wrap(msg, rv, "model.init_from=%s", from) : 0;
}
