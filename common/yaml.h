#ifndef COMMON_YAML_H
#define COMMON_YAML_H

/* YAML files as trees of nodes that know their place (file:line:column). common/yaml.c
 * is the only user of libyaml; common/yaml_tree.c changes trees without knowing it.
 *
 * A tree owns all nodes that were ever made for it, also those that were replaced, so
 * that files can be merged by moving nodes. Everything is bounded: depth, nodes and
 * bytes. Aliases, tags, second documents, keys that are not text and keys given twice
 * are errors. One thread at a time. */

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { YAML_MAX_DEPTH = 32, YAML_MAX_NODES = 10000, YAML_MAX_BYTES = 1 << 20 };

enum yaml_kind { YAML_SCALAR, YAML_SEQ, YAML_MAP };

struct yaml_node {
    enum yaml_kind kind;
    bool plain;       /* a scalar without quotes: null means "not set" there */
    int mark;         /* free for the tree's user; 0 at first */
    char *text;       /* owned; a scalar's text, else NULL */
    char *key;        /* owned; the name in a parent map, else NULL */
    const char *file; /* borrowed from the tree */
    int line, column; /* of the value, from 1; 0: not from a file */
    int key_line, key_column;
    struct yaml_node *parent, *first, *last, *prev, *next;
    struct yaml_node *made_before; /* private: all nodes of the tree */
};

struct yaml_tree;

struct yaml_tree *yaml_tree_new(void);
void yaml_tree_free(struct yaml_tree *t); /* NULL allowed */

/* The file's root: a map (an empty file is an empty one). Errors are one line with the
 * place: ERR_INVALID, ERR_TOO_LARGE past a limit, -errno when it cannot be read. */
int yaml_read_file(struct yaml_tree *t, const char *path, struct yaml_node **ret,
                   struct errmsg *msg) MUST_CHECK;

/* The same for text; `name` stands for the path in errors, any kind of root is fine. */
int yaml_read_text(struct yaml_tree *t, const char *name, const char *text, size_t size,
                   struct yaml_node **ret, struct errmsg *msg) MUST_CHECK;

/* A node without a parent. `file` is copied; `text` may be NULL for seq and map. */
struct yaml_node *yaml_node_new(struct yaml_tree *t, enum yaml_kind kind,
                                const char *file, const char *text);

/* `key` is copied; NULL in a seq, and in a map for a child that has its key already.
 * The child must have no parent; in a map the key must be free. */
void yaml_node_append(struct yaml_node *parent, struct yaml_node *child,
                      const char *key);
void yaml_node_remove(struct yaml_node *n); /* from its parent, if it has one */
void yaml_node_set_text(struct yaml_node *n, const char *text);

/* The child of that name, or NULL; NULL too when `map` is no map. */
struct yaml_node *yaml_node_find(const struct yaml_node *map, const char *key);

/* The node at "a.b.c" below `root`, or NULL. */
struct yaml_node *yaml_node_at(struct yaml_node *root, const char *path);

/* The next node below `root` in reading order; NULL at the end. Starts with n = root.
 */
struct yaml_node *yaml_node_next(const struct yaml_node *root,
                                 const struct yaml_node *n);

/* "a.b[2].c" (cut if need be): where the node is in its tree. */
void yaml_node_path(const struct yaml_node *n, char *text, size_t size);

/* Whether a scalar says that nothing is set: plain null, ~ or nothing at all. */
bool yaml_node_is_null(const struct yaml_node *n);

/* Sets msg to "<file>:<line>:<column>: <text>" of the value, or of its key. */
int yaml_blame(const struct yaml_node *n, int err, struct errmsg *msg, const char *fmt,
               ...) PRINTF_LIKE(4, 5);
int yaml_blame_key(const struct yaml_node *n, int err, struct errmsg *msg,
                   const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Moves the children of map `from` into map `into`: maps merge, everything else
 * replaces. */
void yaml_merge(struct yaml_node *into, struct yaml_node *from);

#endif
