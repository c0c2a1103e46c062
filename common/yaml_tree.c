#include "common/yaml_tree.h"

#include "common/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Nodes and names are kept in two lists and freed with the tree, so nodes may be moved
 * and dropped freely. Everything is iterative: depth comes from a file. */

struct name {
    struct name *before;
    char text[];
};

struct yaml_tree {
    struct yaml_node *newest; /* list of all nodes by made_before */
    struct name *names;       /* list of all names */
    size_t n_nodes;
};

struct yaml_tree *yaml_tree_new(void)
{
    return mem_zalloc(sizeof(struct yaml_tree));
}

void yaml_tree_free(struct yaml_tree *t)
{
    if (!t) {
        return;
    }
    while (t->newest) {
        struct yaml_node *n = t->newest;

        t->newest = n->made_before;
        mem_free(n->text);
        mem_free(n->key);
        mem_free(n);
    }
    while (t->names) {
        struct name *name = t->names;

        t->names = name->before;
        mem_free(name);
    }
    mem_free(t);
}

const char *yaml_tree_keep_name(struct yaml_tree *t, const char *name)
{
    size_t size = strlen(name) + 1;
    struct name *kept;

    for (kept = t->names; kept; kept = kept->before) {
        if (strcmp(kept->text, name) == 0) {
            return kept->text;
        }
    }
    kept = mem_alloc(sizeof(*kept) + size);
    memcpy(kept->text, name, size);
    kept->before = t->names;
    t->names = kept;
    return kept->text;
}

size_t yaml_tree_size(const struct yaml_tree *t)
{
    return t->n_nodes;
}

struct yaml_node *yaml_node_new_in(struct yaml_tree *t, enum yaml_kind kind,
                                   const char *kept_name, const char *text)
{
    struct yaml_node *n = mem_zalloc(sizeof(*n));

    ASSERT((kind == YAML_SCALAR) == (text != NULL));
    n->kind = kind;
    n->file = kept_name;
    n->text = text ? mem_strdup(text) : NULL;
    n->made_before = t->newest;
    t->newest = n;
    t->n_nodes++;
    return n;
}

struct yaml_node *yaml_node_new(struct yaml_tree *t, enum yaml_kind kind,
                                const char *file, const char *text)
{
    return yaml_node_new_in(t, kind, yaml_tree_keep_name(t, file), text);
}

void yaml_node_append(struct yaml_node *parent, struct yaml_node *child,
                      const char *key)
{
    ASSERT(parent->kind != YAML_SCALAR && !child->parent);
    if (key) {
        mem_free(child->key);
        child->key = mem_strdup(key);
    }
    ASSERT(parent->kind != YAML_MAP || child->key);
    child->parent = parent;
    child->prev = parent->last;
    child->next = NULL;
    if (parent->last) {
        parent->last->next = child;
    } else {
        parent->first = child;
    }
    parent->last = child;
}

void yaml_node_remove(struct yaml_node *n)
{
    struct yaml_node *parent = n->parent;

    if (!parent) {
        return;
    }
    *(n->prev ? &n->prev->next : &parent->first) = n->next;
    *(n->next ? &n->next->prev : &parent->last) = n->prev;
    n->parent = NULL;
    n->prev = NULL;
    n->next = NULL;
}

void yaml_node_set_text(struct yaml_node *n, const char *text)
{
    char *copy = mem_strdup(text);

    ASSERT(n->kind == YAML_SCALAR);
    mem_free(n->text);
    n->text = copy;
}

struct yaml_node *yaml_node_find(const struct yaml_node *map, const char *key)
{
    if (map->kind != YAML_MAP) {
        return NULL;
    }
    for (struct yaml_node *n = map->first; n; n = n->next) {
        if (strcmp(n->key, key) == 0) {
            return n;
        }
    }
    return NULL;
}

struct yaml_node *yaml_node_at(struct yaml_node *root, const char *path)
{
    struct yaml_node *n = root;
    char part[256];

    while (n && path) {
        const char *dot = strchr(path, '.');
        size_t len = dot ? (size_t)(dot - path) : strlen(path);

        if (len >= sizeof(part)) {
            return NULL;
        }
        memcpy(part, path, len);
        part[len] = '\0';
        n = yaml_node_find(n, part);
        path = dot ? dot + 1 : NULL;
    }
    return n;
}

struct yaml_node *yaml_node_next(const struct yaml_node *root,
                                 const struct yaml_node *n)
{
    if (n->first) {
        return n->first;
    }
    while (n != root && !n->next) {
        n = n->parent;
    }
    return n == root ? NULL : n->next;
}

static int index_in_parent(const struct yaml_node *n)
{
    int index = 0;

    for (const struct yaml_node *p = n->prev; p; p = p->prev) {
        index++;
    }
    return index;
}

void yaml_node_path(const struct yaml_node *n, char *text, size_t size)
{
    const struct yaml_node *chain[2 * YAML_MAX_DEPTH];
    size_t n_chain = 0;
    size_t used = 0;

    ASSERT(size > 0);
    for (; n->parent && n_chain < ARRAY_LEN(chain); n = n->parent) {
        chain[n_chain++] = n;
    }
    text[0] = '\0';
    while (n_chain > 0 && used < size) {
        const struct yaml_node *at = chain[--n_chain];

        if (at->parent->kind == YAML_SEQ) {
            (void)snprintf(text + used, size - used, "[%d]", index_in_parent(at));
        } else {
            (void)snprintf(text + used, size - used, "%s%s", used > 0 ? "." : "",
                           at->key);
        }
        used += strlen(text + used); /* cut is fine */
    }
}

bool yaml_node_is_null(const struct yaml_node *n)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};

    if (n->kind != YAML_SCALAR || !n->plain) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_LEN(nulls); i++) {
        if (strcmp(n->text, nulls[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void put_place(struct errmsg *msg, const char *file, int line, int column,
                      const char *text)
{
    char place[32] = "";

    if (line > 0) {
        (void)snprintf(place, sizeof(place), ":%d:%d", line, column); /* fits */
    }
    (void)errmsg_set(msg, 0, "%s%s: %s", file, place, text);
}

int yaml_blame(const struct yaml_node *n, int err, struct errmsg *msg, const char *fmt,
               ...)
{
    char text[sizeof(msg->text)];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); /* cut is fine */
    va_end(args);
    put_place(msg, n->file, n->line, n->column, text);
    return err;
}

int yaml_blame_key(const struct yaml_node *n, int err, struct errmsg *msg,
                   const char *fmt, ...)
{
    char text[sizeof(msg->text)];
    bool has_key = n->key_line > 0;
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); /* cut is fine */
    va_end(args);
    put_place(msg, n->file, has_key ? n->key_line : n->line,
              has_key ? n->key_column : n->column, text);
    return err;
}

/* Moves one child; returns the map into which its children still have to be merged. */
static struct yaml_node *merge_child(struct yaml_node *into, struct yaml_node *child)
{
    struct yaml_node *old = yaml_node_find(into, child->key);

    if (old && old->kind == YAML_MAP && child->kind == YAML_MAP) {
        return old;
    }
    if (old) {
        yaml_node_remove(old);
    }
    yaml_node_remove(child);
    yaml_node_append(into, child, NULL);
    return NULL;
}

void yaml_merge(struct yaml_node *into, struct yaml_node *from)
{
    struct {
        struct yaml_node *into, *from;
    } stack[2 * YAML_MAX_DEPTH];
    size_t n = 1;

    ASSERT(into->kind == YAML_MAP && from->kind == YAML_MAP);
    stack[0].into = into;
    stack[0].from = from;
    while (n > 0) {
        struct yaml_node *child = stack[n - 1].from->first;
        struct yaml_node *deeper;

        if (!child) {
            n--;
            continue;
        }
        deeper = merge_child(stack[n - 1].into, child);
        if (deeper) {
            ASSERT(n < ARRAY_LEN(stack)); /* files are at most YAML_MAX_DEPTH deep */
            yaml_node_remove(child);
            stack[n].into = deeper;
            stack[n].from = child;
            n++;
        }
    }
}
