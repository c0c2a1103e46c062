#ifndef WORKER_DATA_FILES_H
#define WORKER_DATA_FILES_H

/* Which files a list of paths, folders and globs means. A folder stands for every
 * regular file in it and below, names that begin with a dot apart; folders and globs
 * are sorted by the bytes of the path, the items of the list keep their order.
 *
 * What the run itself writes is no data: its folders are left out wherever a folder or
 * a glob would find them, whether they are there yet or not, so that every node and
 * every start lists alike; to name one, or what is in it, is an error. */

#include "worker/config.h"

enum { FILES_MAX = 65536, FILES_PATH_MAX = 4096, FILES_OWN_MAX = 2 };

struct file_name {
    char *path;    /* owned */
    bool is_named; /* by the list itself, not found in a folder or by a glob */
};

struct file_names {
    struct file_name *file; /* owned */
    size_t n, capacity;
};

/* `what` ("data.train") begins the errors: no such path, nothing in it, unreadable, the
 * run's own. `own`: the folders that are the run's; NULL: none. */
int files_find(const struct text_list *paths, const char *what,
               const char *const own[FILES_OWN_MAX], struct file_names *ret,
               struct errmsg *msg) MUST_CHECK;
void files_release(struct file_names *f);

#endif
