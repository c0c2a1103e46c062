#include "worker/config_build.h"
#include "worker/config_table.h"

#include "common/str.h"

#include <string.h>

/* Overrides: `a.b=v` sets, `+a.b=v` adds what no file sets, `++a.b=v` does either,
 * `~a.b` removes, so that the default holds. A value that begins with [ { ' or " is
 * YAML; any other is taken verbatim. */

struct override {
    const char *text; /* whole, for errors */
    char path[CONFIG_PATH_MAX];
    const char *value; /* NULL: none */
    int n_plus;
    bool is_removal;
};

int config_blame_unknown(const struct yaml_node *n, const char *path,
                         struct errmsg *msg)
{
    const char *nearest = config_key_nearest(path);
    char names[256];

    config_section_keys(path, names, sizeof(names));
    if (!nearest && names[0]) {
        return yaml_blame_key(n, ERR_INVALID, msg, "unknown key \"%s\"; %.*s has %s",
                              path, (int)strcspn(path, "."), path, names);
    }
    if (!nearest) {
        return yaml_blame_key(n, ERR_INVALID, msg,
                              "unknown key \"%s\"; --help lists the keys", path);
    }
    return yaml_blame_key(n, ERR_INVALID, msg, "unknown key \"%s\"; nearest: \"%s\"",
                          path, nearest);
}

static int blame(const struct override *o, struct errmsg *msg, const char *text)
{
    return errmsg_set(msg, ERR_INVALID, CONFIG_COMMAND_LINE ": \"%s\": %s", o->text,
                      text);
}

static int parse(const char *text, struct override *o, struct errmsg *msg)
{
    const char *key = text;
    size_t len;

    *o = (struct override){.text = text};
    if (*key == '~') {
        o->is_removal = true;
        key++;
    }
    while (!o->is_removal && *key == '+' && o->n_plus < 2) {
        o->n_plus++;
        key++;
    }
    len = strcspn(key, "=");
    if (key[len] == '=') {
        o->value = key + len + 1;
    }
    if (!o->value && len > 5 && strcmp(key + len - 5, ".yaml") == 0) {
        return blame(o, msg,
                     "a file is named with --config-path=DIR --config-name=NAME");
    }
    if (len == 0 || (!o->value && !o->is_removal)) {
        return blame(o, msg, "expected key=value; --help lists options and keys");
    }
    if (len >= sizeof(o->path)) {
        return blame(o, msg, "unknown key; --help lists the keys");
    }
    memcpy(o->path, key, len);
    o->path[len] = '\0';
    return 0;
}

static int parse_value(const struct override *o, struct yaml_tree *tree,
                       struct yaml_node **ret, struct errmsg *msg)
{
    const char *value = o->value;
    struct yaml_node *root;

    ASSERT(value); /* parse() saw to it */
    if (value[0] == '\0' || !strchr("[{'\"", value[0])) {
        *ret = yaml_node_new(tree, YAML_SCALAR, CONFIG_COMMAND_LINE, value);
        (*ret)->plain = value[0] != '\0'; /* "a.b=" is an empty text, not null */
        return 0;
    }
    if (yaml_read_text(tree, CONFIG_COMMAND_LINE, value, strlen(value), &root, NULL) <
        0) {
        return blame(o, msg, "not readable as a [list], {map} or \"text\"");
    }
    for (struct yaml_node *n = root; n; n = yaml_node_next(root, n)) {
        n->line = 0; /* a place inside an argument says nothing */
        n->key_line = 0;
    }
    *ret = root;
    return 0;
}

static int remove_key(const struct override *o, struct yaml_node *root,
                      struct errmsg *msg)
{
    struct yaml_node *old = yaml_node_at(root, o->path);

    if (!old) {
        return blame(o, msg, "nothing sets it");
    }
    if (o->value && (old->kind != YAML_SCALAR || strcmp(old->text, o->value) != 0)) {
        return blame(o, msg, "it has another value");
    }
    yaml_node_remove(old);
    return 0;
}

static int set_section(const struct override *o, struct yaml_tree *tree,
                       struct yaml_node *root, struct yaml_node *value,
                       struct errmsg *msg)
{
    if (value->kind != YAML_MAP) {
        return blame(o, msg, "a section of keys, not a value");
    }
    yaml_merge(config_section(tree, root, o->path), value);
    return 0;
}

static int set_key(const struct override *o, struct yaml_tree *tree,
                   struct yaml_node *root, struct errmsg *msg)
{
    const char *leaf = strchr(o->path, '.');
    struct yaml_node *old = yaml_node_at(root, o->path);
    char section[CONFIG_PATH_MAX];
    struct yaml_node *value = NULL;
    int rv;

    rv = parse_value(o, tree, &value, msg);
    if (rv < 0) {
        return rv;
    }
    ASSERT(value);
    if (!config_key_find(o->path)) {
        return set_section(o, tree, root, value, msg);
    }
    ASSERT(leaf); /* every key of the table lies in a section */
    if (old && o->n_plus == 1) {
        return blame(o, msg, "it is set already; leave the + out or write ++");
    }
    if (old) {
        yaml_node_remove(old);
    }
    memcpy(section, o->path, (size_t)(leaf - o->path));
    section[leaf - o->path] = '\0';
    yaml_node_append(config_section(tree, root, section), value, leaf + 1);
    return 0;
}

static int apply(const char *text, struct yaml_tree *tree, struct yaml_node *root,
                 struct errmsg *msg)
{
    struct override o = {0};
    int rv;

    rv = parse(text, &o, msg);
    if (rv < 0) {
        return rv;
    }
    if (!config_key_find(o.path) && !config_is_section(o.path)) {
        return config_blame_unknown(
            yaml_node_new(tree, YAML_MAP, CONFIG_COMMAND_LINE, NULL), o.path, msg);
    }
    return o.is_removal ? remove_key(&o, root, msg) : set_key(&o, tree, root, msg);
}

int config_override(const struct config_args *args, struct yaml_tree *tree,
                    struct yaml_node *root, struct errmsg *msg)
{
    for (size_t i = 0; i < args->n_overrides; i++) {
        int rv = apply(args->override[i], tree, root, msg);

        if (rv < 0) {
            return rv;
        }
    }
    return 0;
}

/* Keys that no table has, and sections that are values or values that are sections. */
static int check_node(const struct yaml_node *n, struct errmsg *msg)
{
    char path[512];

    yaml_node_path(n, path, sizeof(path));
    if (strchr(n->key, '.')) {
        return yaml_blame_key(n, ERR_INVALID, msg,
                              "\"%s\": in a file, keys are nested: write \"a: {b: …}\"",
                              n->key);
    }
    if (config_key_find(path)) {
        return 0;
    }
    if (!config_is_section(path)) {
        return config_blame_unknown(n, path, msg);
    }
    if (n->kind != YAML_MAP && !yaml_node_is_null(n)) {
        return yaml_blame(n, ERR_INVALID, msg,
                          "\"%s\" is a section of keys, not a value", path);
    }
    return 0;
}

/* The next node that a table may know: what lies inside a key's value is the decoder's.
 */
static struct yaml_node *next_key(const struct yaml_node *root, struct yaml_node *n)
{
    char path[512];

    yaml_node_path(n, path, sizeof(path));
    if (!config_key_find(path)) {
        return yaml_node_next(root, n);
    }
    while (n != root && !n->next) {
        n = n->parent;
    }
    return n == root ? NULL : n->next;
}

static int check_known(struct yaml_node *root, struct errmsg *msg)
{
    struct yaml_node *n = yaml_node_next(root, root);
    int rv = 0;

    while (n && rv == 0) {
        rv = check_node(n, msg);
        n = next_key(root, n);
    }
    return rv;
}

/* Null stands for no section and no list; a key has a value, or is left out. */
static int blame_null(const struct config_key *key, const struct yaml_node *n,
                      struct errmsg *msg)
{
    char wanted[160];

    config_key_describe(key, wanted, sizeof(wanted));
    return yaml_blame(n, ERR_INVALID, msg,
                      "%s: null is not %s; leave the key out for its default (%s)",
                      key->path, wanted, key->fallback[0] ? key->fallback : "\"\"");
}

static int fill_key(const struct config_key *key, struct yaml_tree *tree,
                    struct yaml_node *root, struct errmsg *msg)
{
    struct yaml_node *old = yaml_node_at(root, key->path);
    const char *leaf = strchr(key->path, '.') + 1;
    char section[CONFIG_PATH_MAX];
    char name[CONFIG_PATH_MAX + 32];
    struct yaml_node *n;

    if (old && !yaml_node_is_null(old)) {
        return 0;
    }
    if (old && key->type != CONFIG_TEXTS) {
        return blame_null(key, old, msg);
    }
    if (old) {
        yaml_node_remove(old);
    }
    ASSERT(str_format(name, sizeof(name), "default of %s", key->path));
    if (key->fallback[0] == '[') {
        int rv =
            yaml_read_text(tree, name, key->fallback, strlen(key->fallback), &n, msg);

        if (rv < 0) {
            return rv; /* the tree is full */
        }
    } else {
        n = yaml_node_new(tree, YAML_SCALAR, name, key->fallback);
    }
    n->line = 0;
    ASSERT(str_format(section, sizeof(section), "%.*s", (int)(leaf - 1 - key->path),
                      key->path));
    yaml_node_append(config_section(tree, root, section), n, leaf);
    return 0;
}

int config_fill(struct yaml_tree *tree, struct yaml_node *root, struct errmsg *msg)
{
    int rv = check_known(root, msg);

    for (size_t i = 0; i < config_n_keys() && rv == 0; i++) {
        rv = fill_key(config_key_at(i), tree, root, msg);
    }
    return rv;
}
