#include "worker/config_build.h"
#include "worker/config_table.h"

#include "common/buf.h"
#include "common/mem.h"
#include "common/str.h"

#include <stdlib.h>
#include <string.h>

/* ${a.b}, ${env:NAME} and ${env:NAME,default} inside scalars, as in OmegaConf (where
 * env is oc.env, which is known too). "\${" is a "${" that stays; before it, "\\" is
 * one backslash. A value that is one reference and nothing else may take a list.
 *
 * Happy path: a depth-first walk with an explicit stack. The topmost scalar is expanded
 * once everything that it refers to is done; what is not is pushed. Meeting a node that
 * is on the stack is a cycle. A text is at most TEXT_CEILING long, so that doubling
 * cannot explode. */

enum { TEXT_CEILING = 4096, MAX_CHAIN = 128 };
enum mark { MARK_FRESH, MARK_OPEN, MARK_DONE };

/* A stretch of a scalar: literal text, or what stands between "${" and "}". */
struct piece {
    const char *text;
    size_t len;
    bool is_reference;
};

struct interpolator {
    struct yaml_tree *tree;
    struct yaml_node *root;
    struct yaml_node *open[MAX_CHAIN];
    size_t n_open;
    struct errmsg *msg;
};

/* Takes the next piece at *at; false at the end. An unclosed "${" has len 0 and a NULL
 * text. */
static bool take_piece(const char **at, struct piece *ret)
{
    const char *s = *at;
    size_t run = strspn(s, "\\");
    const char *close;

    if (*s == '\0') {
        return false;
    }
    *ret = (struct piece){.text = s, .len = run};
    if (s[run] != '$' || s[run + 1] != '{') {
        ret->len = run + strcspn(s + run + (s[run] == '$'), "\\$") + (s[run] == '$');
        *at = s + ret->len;
    } else if (run % 2 == 1) {
        ret->text = s + run - run / 2;
        ret->len = run / 2 + 2;
        *at = s + run + 2;
    } else if (run > 0) {
        ret->len = run / 2;
        *at = s + run;
    } else {
        close = strchr(s, '}');
        ret->is_reference = true;
        ret->text = close ? s + 2 : NULL;
        ret->len = close ? (size_t)(close - s) - 2 : 0;
        *at = close ? close + 1 : s + strlen(s);
    }
    return true;
}

/* What follows "env:" or "oc.env:"; NULL for another reference. */
static const char *env_part(const char *body)
{
    if (str_starts_with(body, "env:")) {
        return body + strlen("env:");
    }
    return str_starts_with(body, "oc.env:") ? body + strlen("oc.env:") : NULL;
}

static int copy_body(const struct interpolator *in, const struct yaml_node *n,
                     const struct piece *piece, char *body, size_t size)
{
    if (!piece->text) {
        return yaml_blame(n, ERR_INVALID, in->msg, "\"%s\": ${ without }", n->text);
    }
    if (piece->len == 0 || piece->len >= size || memchr(piece->text, '$', piece->len)) {
        return yaml_blame(n, ERR_INVALID, in->msg,
                          "\"%s\": expected ${section.key} or ${env:NAME,default}",
                          n->text);
    }
    memcpy(body, piece->text, piece->len);
    body[piece->len] = '\0';
    return 0;
}

static int find_target(const struct interpolator *in, const struct yaml_node *n,
                       const char *body, struct yaml_node **ret)
{
    struct yaml_node *target = yaml_node_at(in->root, body);
    const char *nearest;

    if (!target) {
        nearest = config_key_nearest(body);
        return yaml_blame(n, ERR_INVALID, in->msg, "${%s}: no such key%s%s%s", body,
                          nearest ? "; nearest: \"" : "", nearest ? nearest : "",
                          nearest ? "\"" : "");
    }
    if (target->kind == YAML_MAP) {
        return yaml_blame(n, ERR_INVALID, in->msg, "${%s} is a section, not a value",
                          body);
    }
    *ret = target;
    return 0;
}

/* Pushes `target`, or the first of its items, that is not done. 1: pushed, 0: all done.
 */
static int push_pending(struct interpolator *in, const struct yaml_node *n,
                        struct yaml_node *target, const char *body)
{
    struct yaml_node *t = target->kind == YAML_SEQ ? target->first : target;

    while (t && (t->kind != YAML_SCALAR || t->mark == MARK_DONE)) {
        t = target->kind == YAML_SEQ ? t->next : NULL;
    }
    if (!t) {
        return 0;
    }
    if (t->mark == MARK_OPEN) {
        return yaml_blame(n, ERR_INVALID, in->msg, "${%s} refers to itself", body);
    }
    if (in->n_open == MAX_CHAIN) {
        return yaml_blame(n, ERR_TOO_LARGE, in->msg, "${%s}: too long a chain", body);
    }
    t->mark = MARK_OPEN;
    in->open[in->n_open++] = t;
    return 1;
}

/* 1: something has to be resolved before this node and was pushed. */
static int push_needed(struct interpolator *in, const struct yaml_node *n)
{
    const char *at = n->text;
    char body[TEXT_CEILING];
    struct piece piece;
    int rv = 0;

    while (rv == 0 && take_piece(&at, &piece)) {
        struct yaml_node *target = NULL;

        if (!piece.is_reference) {
            continue;
        }
        rv = copy_body(in, n, &piece, body, sizeof(body));
        if (rv == 0 && !env_part(body)) {
            rv = find_target(in, n, body, &target);
        }
        if (rv == 0 && target) {
            rv = push_pending(in, n, target, body);
        }
    }
    return rv;
}

/* An empty stretch needs no room. */
static int put(struct buf *out, const char *text, size_t len)
{
    return len > 0 ? buf_append(out, text, len) : 0;
}

static int expand_env(const struct interpolator *in, const struct yaml_node *n,
                      const char *part, struct buf *out)
{
    size_t len = strcspn(part, ",");
    const char *fallback = part[len] == ',' ? part + len + 1 : NULL;
    const char *value;
    char name[256];

    if (len == 0 || len >= sizeof(name)) {
        return yaml_blame(n, ERR_INVALID, in->msg,
                          "\"%s\": expected ${env:NAME,default}", n->text);
    }
    memcpy(name, part, len);
    name[len] = '\0';
    value = getenv(name); /* NOLINT(concurrency-mt-unsafe): nobody calls setenv */
    if (!value && fallback) {
        value = fallback + strspn(fallback, " ");
    }
    if (!value) {
        return yaml_blame(n, ERR_MISSING, in->msg,
                          "${env:%s}: not set in the environment, and no default: "
                          "${env:%s,default}",
                          name, name);
    }
    return put(out, value, strlen(value));
}

static int expand_key(const struct interpolator *in, const struct yaml_node *n,
                      const char *body, struct buf *out)
{
    struct yaml_node *target;
    int rv = find_target(in, n, body, &target);

    if (rv < 0) {
        return rv;
    }
    if (target->kind == YAML_SEQ) {
        return yaml_blame(n, ERR_INVALID, in->msg, "${%s} is a list inside a text",
                          body);
    }
    return put(out, target->text, strlen(target->text));
}

static int expand_pieces(const struct interpolator *in, const struct yaml_node *n,
                         struct buf *out)
{
    const char *at = n->text;
    char body[TEXT_CEILING];
    struct piece piece;
    int rv = 0;

    while (rv == 0 && take_piece(&at, &piece)) {
        const char *part;

        if (!piece.is_reference) {
            rv = put(out, piece.text, piece.len);
            continue;
        }
        rv = copy_body(in, n, &piece, body, sizeof(body));
        part = env_part(body);
        if (rv == 0) {
            rv = part ? expand_env(in, n, part, out) : expand_key(in, n, body, out);
        }
    }
    if (rv == ERR_TOO_LARGE) {
        return yaml_blame(n, rv, in->msg, "longer than %d bytes", TEXT_CEILING);
    }
    return rv < 0 ? rv : buf_append(out, "", 1);
}

/* The list that the whole of `n` refers to, or NULL. */
static struct yaml_node *whole_list(const struct interpolator *in,
                                    const struct yaml_node *n)
{
    const char *at = n->text;
    char body[TEXT_CEILING];
    struct piece piece;
    struct yaml_node *target;

    if (!take_piece(&at, &piece) || !piece.is_reference || *at != '\0' ||
        copy_body(in, n, &piece, body, sizeof(body)) < 0 || env_part(body)) {
        return NULL;
    }
    target = yaml_node_at(in->root, body);
    return target && target->kind == YAML_SEQ ? target : NULL;
}

/* Turns the scalar into a copy of the list. */
static int become_list(const struct interpolator *in, struct yaml_node *n,
                       const struct yaml_node *list)
{
    for (const struct yaml_node *item = list->first; item; item = item->next) {
        if (item->kind != YAML_SCALAR) {
            return yaml_blame(item, ERR_INVALID, in->msg, "a list inside a list");
        }
    }
    mem_free(n->text);
    n->text = NULL;
    n->kind = YAML_SEQ;
    for (const struct yaml_node *item = list->first; item; item = item->next) {
        struct yaml_node *copy =
            yaml_node_new(in->tree, YAML_SCALAR, item->file, item->text);

        copy->line = item->line;
        copy->column = item->column;
        copy->mark = MARK_DONE;
        yaml_node_append(n, copy, NULL);
    }
    return 0;
}

static int expand(const struct interpolator *in, struct yaml_node *n)
{
    const struct yaml_node *list = whole_list(in, n);
    struct buf out;
    int rv;

    if (list) {
        return become_list(in, n, list);
    }
    if (!strstr(n->text, "${")) {
        return 0; /* of any length: decoding will judge it */
    }
    buf_init(&out, TEXT_CEILING);
    rv = expand_pieces(in, n, &out);
    if (rv == 0) {
        yaml_node_set_text(n, (const char *)buf_bytes(&out));
    }
    buf_release(&out);
    return rv;
}

static int resolve(struct interpolator *in, struct yaml_node *first)
{
    first->mark = MARK_OPEN;
    in->open[0] = first;
    in->n_open = 1;
    while (in->n_open > 0) {
        struct yaml_node *n = in->open[in->n_open - 1];
        int rv = push_needed(in, n);

        if (rv == 0) {
            rv = expand(in, n);
            n->mark = MARK_DONE;
            in->n_open--;
        }
        if (rv < 0) {
            return rv;
        }
    }
    return 0;
}

int config_interpolate(struct yaml_tree *tree, struct yaml_node *root,
                       struct errmsg *msg)
{
    struct interpolator in = {.tree = tree, .root = root, .msg = msg};

    for (struct yaml_node *n = root; n; n = yaml_node_next(root, n)) {
        int rv;

        if (n->kind != YAML_SCALAR || n->mark == MARK_DONE) {
            continue;
        }
        rv = resolve(&in, n);
        if (rv < 0) {
            return rv;
        }
    }
    return 0;
}
