#include "worker/data/files.h"

#include "common/mem.h"
#include "common/storage.h"
#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct finder {
    struct file_names files;
    struct file_names folders;         /* still to be read */
    char own[FILES_OWN_MAX][PATH_MAX]; /* without links; "": none */
    bool has_left_out;
    const char *what;
    struct errmsg *msg;
};

void files_release(struct file_names *f)
{
    for (size_t i = 0; i < f->n; i++) {
        mem_free(f->file[i].path);
    }
    mem_free(f->file);
    *f = (struct file_names){0};
}

static int blame(const struct finder *f, const char *path, int err)
{
    char here[FILES_PATH_MAX];

    if (err == -ENOENT && path[0] != '/' && getcwd(here, sizeof(here))) {
        return errmsg_set(f->msg, err,
                          "%s: %s: %s; a path that does not begin with / counts from "
                          "where the program is started: %s",
                          f->what, path, err_text(err), here);
    }
    return errmsg_set(f->msg, err, "%s: %s: %s", f->what, path, err_text(err));
}

static int add(const struct finder *f, struct file_names *list, const char *path,
               bool is_named)
{
    if (list->n == FILES_MAX) {
        return errmsg_set(f->msg, ERR_TOO_LARGE, "%s: %s: more than %d files", f->what,
                          path, FILES_MAX);
    }
    if (list->n == list->capacity) {
        list->capacity = MAX(64, 2 * list->capacity);
        list->file = mem_grow(list->file, list->capacity, sizeof(*list->file));
    }
    list->file[list->n].path = mem_strdup(path);
    list->file[list->n].is_named = is_named;
    list->n++;
    return 0;
}

/* --- what the run itself writes --- */

static int resolve_own(struct finder *f, const char *const own[FILES_OWN_MAX])
{
    for (size_t i = 0; own && i < FILES_OWN_MAX; i++) {
        int rv = own[i] ? storage_resolve(own[i], f->own[i]) : 0;

        if (rv < 0 && rv != -ENOTDIR) { /* it cannot be made either, which tells why */
            return errmsg_set(f->msg, rv, "%s: %s", own[i], err_text(rv));
        }
        if (rv < 0) {
            f->own[i][0] = '\0';
        }
    }
    return 0;
}

static bool is_own(const struct finder *f, const char *path)
{
    char real[PATH_MAX];

    if (!realpath(path, real)) {
        return false; /* stat says why */
    }
    for (size_t i = 0; i < FILES_OWN_MAX; i++) {
        if (f->own[i][0] && storage_is_in(real, f->own[i])) {
            return true;
        }
    }
    return false;
}

static int refuse_own(const struct finder *f, const char *path)
{
    return errmsg_set(f->msg, ERR_INVALID,
                      "%s: %s is in run.dir or checkpoint.dir, which this run writes: "
                      "keep data elsewhere",
                      f->what, path);
}

/* --- finding --- */

/* Files and folders to their lists; what is found and is neither (a socket, say) is
 * left out. */
static int classify(struct finder *f, const char *path, bool is_named)
{
    struct stat st;

    if (is_own(f, path)) { /* first: what a run writes comes and goes */
        f->has_left_out = true;
        return is_named ? refuse_own(f, path) : 0;
    }
    if (stat(path, &st) < 0) {
        return blame(f, path, -errno);
    }
    if (S_ISDIR(st.st_mode)) {
        return add(f, &f->folders, path, is_named);
    }
    if (S_ISREG(st.st_mode)) {
        return add(f, &f->files, path, is_named);
    }
    return is_named ? errmsg_set(f->msg, ERR_INVALID, "%s: %s: not a file or folder",
                                 f->what, path)
                    : 0;
}

static int add_entry(struct finder *f, const char *folder, const char *name)
{
    size_t len = strlen(folder);
    char path[FILES_PATH_MAX];

    if (name[0] == '.') {
        return 0;
    }
    if (!str_format(path, sizeof(path), "%s%s%s", folder,
                    len > 0 && folder[len - 1] == '/' ? "" : "/", name)) {
        return blame(f, folder,
                     -ENAMETOOLONG); /* a loop of links ends here, or in ELOOP */
    }
    return classify(f, path, false);
}

static int read_folder(struct finder *f, const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry = NULL;
    int rv = 0;

    if (!dir) {
        return blame(f, folder, -errno);
    }
    do {
        errno = 0;
        entry =
            readdir(dir); /* NOLINT(concurrency-mt-unsafe): the stream is ours alone */
        if (!entry && errno) {
            rv = blame(f, folder, -errno);
        } else if (entry) {
            rv = add_entry(f, folder, entry->d_name);
        }
    } while (rv == 0 && entry);
    (void)closedir(dir); /* only read from */
    return rv;
}

static int read_folders(struct finder *f)
{
    int rv = 0;

    while (rv == 0 && f->folders.n > 0) {
        char *folder = f->folders.file[--f->folders.n].path;

        rv = read_folder(f, folder);
        mem_free(folder);
    }
    return rv;
}

static int find_glob(struct finder *f, const char *pattern)
{
    glob_t found;
    int rv;

    /* without ~ it shares nothing: NOLINTNEXTLINE(concurrency-mt-unsafe) */
    rv = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    if (rv == GLOB_NOMATCH) {
        return blame(f, pattern, -ENOENT);
    }
    if (rv != 0) {
        globfree(&found);
        return errmsg_set(f->msg, ERR_INVALID, "%s: %s: cannot be searched", f->what,
                          pattern);
    }
    rv = 0;
    for (size_t i = 0; i < found.gl_pathc && rv == 0; i++) {
        rv = classify(f, found.gl_pathv[i], false);
    }
    globfree(&found);
    return rv;
}

static int on_compare(const void *a, const void *b)
{
    const struct file_name *left = a;
    const struct file_name *right = b;

    return strcmp(left->path, right->path);
}

static int find_item(struct finder *f, const char *item)
{
    size_t first = f->files.n;
    struct stat st;
    int rv;

    if (stat(item, &st) < 0 && errno == ENOENT && strpbrk(item, "*?[")) {
        rv = find_glob(f, item);
    } else {
        rv = classify(f, item, true);
    }
    rv = rv < 0 ? rv : read_folders(f);
    if (rv < 0) {
        return rv;
    }
    if (f->files.n == first) {
        return errmsg_set(f->msg, ERR_INVALID, "%s: %s: no file in it%s", f->what, item,
                          f->has_left_out ? ": run.dir and checkpoint.dir are left out"
                                          : "");
    }
    qsort(f->files.file + first, f->files.n - first, sizeof(*f->files.file),
          on_compare);
    return 0;
}

int files_find(const struct text_list *paths, const char *what,
               const char *const own[FILES_OWN_MAX], struct file_names *ret,
               struct errmsg *msg)
{
    struct finder f = {.what = what, .msg = msg};
    int rv = resolve_own(&f, own);

    for (int i = 0; i < paths->n && rv == 0; i++) {
        rv = find_item(&f, paths->item[i]);
    }
    files_release(&f.folders);
    if (rv < 0) {
        files_release(&f.files);
        return rv;
    }
    *ret = f.files;
    return 0;
}
