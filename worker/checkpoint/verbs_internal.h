#ifndef WORKER_CHECKPOINT_VERBS_INTERNAL_H
#define WORKER_CHECKPOINT_VERBS_INTERNAL_H

/* What the verbs share; only verbs.c and verb_*.c include it. */

#include "worker/checkpoint/checkpoint.h"

#include <jansson.h>

enum { CKPT_OK = 0, CKPT_BAD = 1, CKPT_USAGE = 2 };

struct ckpt_args {
    const char *path;
    struct checkpoint_retention retention; /* 0: not given */
    bool json;
    bool tensors; /* show: list them too */
};

/* The checkpoints that a path means: itself, or all in a folder (of a run, too), newest
 * first. */
struct ckpt_targets {
    char
        dir[CHECKPOINT_PATH_MAX]; /* the folder of checkpoints; "" when `path` is one */
    struct checkpoint_entry
        *entry; /* owned; step and run generation only from a folder */
    size_t n;
};

/* 0, or the exit code after its line was printed. */
int ckpt_find_targets(const char *path, struct ckpt_targets *ret) MUST_CHECK;
void ckpt_targets_release(struct ckpt_targets *targets);

/* The base name of a checkpoint's path. */
void ckpt_name(const char *path, char *name, size_t size);

/* "12.3 MB". */
void ckpt_format_size(char *text, size_t size, uint64_t bytes);

/* A JSON string; bytes that are no UTF-8 (of a file name) become question marks. */
json_t *ckpt_json_text(const char *text);

/* Prints an object, pretty, and releases it. */
void ckpt_print_json(json_t *json);

/* "ctrun ckpt: …" on stderr; returns `code`. */
int ckpt_fail(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);

int ckpt_list(const struct ckpt_args *args);
int ckpt_verify(const struct ckpt_args *args);
int ckpt_show(const struct ckpt_args *args);
int ckpt_prune(const struct ckpt_args *args);

#endif
