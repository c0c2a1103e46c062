#include "worker/config_build.h"
#include "worker/config_table.h"

#include "common/str.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The defaults list, as in Hydra. A file in folder a/b of the configuration folder goes
 * below the key a.b; the files of a list come in its order, each over those before; a
 * file's own content comes where its list says `_self_`, else last.
 *
 * Happy path: the primary file is pushed on a stack of open files. Each turn takes the
 * next item of the topmost file's list and pushes that file, or, at the list's end,
 * merges the file's own content into the tree and pops it. */

enum { MAX_OPEN = 16, MAX_FILES = 128, PATH_TEXT_MAX = 1024 };

/* Of the files named in an error. */
enum { NAMES_MAX = 8, LIST_TEXT_MAX = 256, SEPARATOR_MAX = 20 };

struct open_file {
    struct yaml_node *content;     /* without its list */
    struct yaml_node *item;        /* next of the list; NULL at its end */
    struct yaml_node *option;      /* next of `- group: [a, b]`; NULL outside */
    char folder[CONFIG_GROUP_MAX]; /* "" or "model" */
    char path[PATH_TEXT_MAX];
    bool is_merged;
};

struct composer {
    struct config_args *args;
    struct yaml_tree *tree;
    struct yaml_node *root;
    struct open_file open[MAX_OPEN];
    size_t n_open;
    size_t n_files;
    struct errmsg *msg;
};

/* What an item wants: a file of a folder. */
struct wanted {
    const struct yaml_node *place; /* for errors; NULL: the command line */
    char folder[CONFIG_GROUP_MAX];
    char option[CONFIG_GROUP_MAX];
    bool is_optional;
};

/* The map of that name in `at`; what else has the name makes room. */
static struct yaml_node *child_map(struct yaml_tree *tree, struct yaml_node *at,
                                   const char *name)
{
    struct yaml_node *child = yaml_node_find(at, name);
    struct yaml_node *map;

    if (child && child->kind == YAML_MAP) {
        return child;
    }
    map =
        yaml_node_new(tree, YAML_MAP, child ? child->file : CONFIG_COMMAND_LINE, NULL);
    if (child) {
        yaml_node_remove(child);
    }
    yaml_node_append(at, map, name);
    return map;
}

struct yaml_node *config_section(struct yaml_tree *tree, struct yaml_node *root,
                                 const char *path)
{
    struct yaml_node *at = root;
    char part[CONFIG_GROUP_MAX];

    while (*path) {
        size_t len = strcspn(path, "./");

        ASSERT(len < sizeof(part));
        memcpy(part, path, len);
        part[len] = '\0';
        path += len + (path[len] != '\0');
        at = child_map(tree, at, part);
    }
    return at;
}

/* Bytes of a file's name before its ending; all of it without one. */
static size_t stem(const char *name, const char **ret_ending)
{
    static const char *const endings[] = {".yaml", ".yml"};
    size_t len = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
        size_t n = strlen(endings[i]);

        if (len > n && strcmp(name + len - n, endings[i]) == 0) {
            *ret_ending = endings[i];
            return len - n;
        }
    }
    *ret_ending = "";
    return len;
}

/* An error is one line: a name with a line's end in it is not told. */
static int is_configuration(const struct dirent *e)
{
    const char *ending;

    (void)stem(e->d_name, &ending);
    for (const char *c = e->d_name; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 127) {
            return 0;
        }
    }
    return e->d_name[0] != '.' && ending[0] != '\0';
}

static void add_text(char *text, size_t size, const char *more, size_t n)
{
    size_t len = strlen(text);

    (void)snprintf(text + len, size - len, "%.*s", (int)n, more); /* cut is fine */
}

/* "; the folder has a, b": what could have been meant by a path that is not there. ""
 * where the folder has none. */
static void list_beside(const char *path, char *text, size_t size)
{
    const char *slash = strrchr(path, '/');
    struct dirent **entry = NULL;
    char dir[PATH_TEXT_MAX];
    int n;

    text[0] = '\0';
    if (!str_format(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path + 1) : 1,
                    slash ? path : ".")) {
        return;
    }
    n = scandir(dir, &entry, is_configuration, alphasort);
    for (int i = 0; i < n; i++) {
        const char *ending;
        size_t len = stem(entry[i]->d_name, &ending);

        if (i < NAMES_MAX) {
            /* the other ending must be given */
            len += strcmp(ending, ".yml") == 0 ? strlen(ending) : 0;
            add_text(text, size, i == 0 ? "; the folder has " : ", ", SEPARATOR_MAX);
            add_text(text, size, entry[i]->d_name, len);
        }
        free(entry[i]);
    }
    free(entry);
    if (n > NAMES_MAX) {
        add_text(text, size, " …", strlen(" …"));
    }
}

/* Puts `text` into `out` without the leading "/" and the trailing ".yaml". */
static int clean_name(const char *text, char *out, size_t size)
{
    size_t len;

    text += text[0] == '/';
    len = strlen(text);
    if (len > 5 && strcmp(text + len - 5, ".yaml") == 0) {
        len -= 5;
    }
    if (len == 0 || len >= size || strstr(text, "..") || strchr(text, '\\')) {
        return ERR_INVALID;
    }
    memcpy(out, text, len);
    out[len] = '\0';
    return 0;
}

/* folder + "/" + name, where a name that begins with "/" counts from the top. */
static bool join(const char *folder, const char *name, char *out, size_t size)
{
    char clean[CONFIG_GROUP_MAX];

    if (clean_name(name, clean, sizeof(clean)) < 0) {
        return false;
    }
    if (name[0] == '/' || folder[0] == '\0') {
        return str_format(out, size, "%s", clean);
    }
    return str_format(out, size, "%s/%s", folder, clean);
}

/* Splits "a/b/c" into folder "a/b" and option "c". */
static int set_wanted(const char *folder, const char *name, struct wanted *w)
{
    char path[CONFIG_GROUP_MAX];
    char *slash;

    if (!join(folder, name, path, sizeof(path))) {
        return ERR_INVALID;
    }
    slash = strrchr(path, '/');
    memcpy(w->option, slash ? slash + 1 : path, strlen(slash ? slash + 1 : path) + 1);
    path[slash ? (size_t)(slash - path) : 0] = '\0';
    memcpy(w->folder, path, strlen(path) + 1);
    return w->option[0] ? 0 : ERR_INVALID;
}

static int blame_item(const struct composer *c, const struct yaml_node *place, int err,
                      const char *text)
{
    if (!place) {
        return errmsg_set(c->msg, err, CONFIG_COMMAND_LINE ": %s", text);
    }
    return yaml_blame(place, err, c->msg, "defaults: %s", text);
}

/* Takes the list out of a file's content. */
static int take_list(const struct composer *c, struct open_file *file)
{
    struct yaml_node *list = yaml_node_find(file->content, "defaults");

    file->item = NULL;
    if (!list) {
        return 0;
    }
    if (list->kind != YAML_SEQ && !yaml_node_is_null(list)) {
        return blame_item(c, list, ERR_INVALID,
                          "expected a list: \"- file\" or \"- group: file\"");
    }
    file->item = list->first;
    yaml_node_remove(list);
    return 0;
}

static int check_cycle(const struct composer *c, const struct wanted *w,
                       const char *path)
{
    char text[PATH_TEXT_MAX + 64];

    for (size_t i = 0; i < c->n_open; i++) {
        if (strcmp(c->open[i].path, path) == 0) {
            (void)snprintf(text, sizeof(text), "%s includes itself", path); /* fits */
            return blame_item(c, w->place, ERR_INVALID, text);
        }
    }
    if (c->n_open == MAX_OPEN || c->n_files == MAX_FILES) {
        return blame_item(c, w->place, ERR_TOO_LARGE,
                          "more than 16 levels or 128 files");
    }
    return 0;
}

static int push_path(struct composer *c, const char *path, const char *folder)
{
    struct open_file *file = &c->open[c->n_open];
    int rv;

    *file = (struct open_file){0};
    rv = yaml_read_file(c->tree, path, &file->content, c->msg);
    if (rv < 0) {
        return rv;
    }
    memcpy(file->path, path, strlen(path) + 1);
    memcpy(file->folder, folder, strlen(folder) + 1);
    rv = take_list(c, file);
    c->n_open++;
    c->n_files++;
    return rv;
}

static int push_wanted(struct composer *c, const struct wanted *w)
{
    char path[PATH_TEXT_MAX];
    char text[PATH_TEXT_MAX + LIST_TEXT_MAX + 64];
    char beside[LIST_TEXT_MAX];
    int rv;

    if (!str_format(path, sizeof(path), "%s/%s%s%s.yaml", c->args->dir, w->folder,
                    w->folder[0] ? "/" : "", w->option)) {
        return blame_item(c, w->place, ERR_TOO_LARGE, "too long a path");
    }
    if (access(path, F_OK) < 0) {
        if (w->is_optional) {
            return 0;
        }
        list_beside(path, beside, sizeof(beside));
        (void)snprintf(text, sizeof(text), "%s: no such file%s", path, beside);
        return blame_item(c, w->place, ERR_MISSING, text);
    }
    rv = check_cycle(c, w, path);
    return rv < 0 ? rv : push_path(c, path, w->folder);
}

static void merge_top(struct composer *c)
{
    struct open_file *file = &c->open[c->n_open - 1];

    if (!file->is_merged) {
        yaml_merge(config_section(c->tree, c->root, file->folder), file->content);
        file->is_merged = true;
    }
}

static struct config_choice *find_choice(struct config_args *args, const char *group)
{
    for (size_t i = args->n_choices; i > 0; i--) { /* the last one wins */
        if (strcmp(args->choice[i - 1].group, group) == 0) {
            return &args->choice[i - 1];
        }
    }
    return NULL;
}

static void mark_used(struct config_args *args, const char *group)
{
    for (size_t i = 0; i < args->n_choices; i++) {
        if (strcmp(args->choice[i].group, group) == 0) {
            args->choice[i].is_used = true;
        }
    }
}

/* The group's folder as an absolute group path: "model", "model/attention". */
static int group_of(struct composer *c, const struct yaml_node *entry,
                    const char *folder, struct wanted *w)
{
    const char *key = entry->key;

    w->place = entry;
    w->is_optional = str_starts_with(key, "optional ");
    key += w->is_optional ? strlen("optional ") : 0;
    if (strpbrk(key, "@ ")) {
        return blame_item(c, entry, ERR_UNSUPPORTED,
                          "\"override\" and \"@package\" are not supported");
    }
    if (!join(folder, key, w->folder, sizeof(w->folder))) {
        return blame_item(c, entry, ERR_INVALID, "not the name of a folder");
    }
    return 0;
}

static int push_option(struct composer *c, struct wanted *w, const char *option)
{
    char group[CONFIG_GROUP_MAX];
    char name[CONFIG_GROUP_MAX + 1];

    memcpy(group, w->folder, sizeof(group));
    if (!str_format(name, sizeof(name), "%s", option) || name[0] == '/' ||
        set_wanted(group, name, w) < 0) {
        return blame_item(c, w->place, ERR_INVALID, "not the name of a file");
    }
    return push_wanted(c, w);
}

/* `- group: option`, `- group: [a, b]`, `- group: null`. */
static int take_group(struct composer *c, struct open_file *file,
                      struct yaml_node *entry)
{
    struct wanted w = {0};
    struct config_choice *choice;
    int rv;

    if (!entry || entry->next) {
        return blame_item(c, entry ? entry->next : file->content, ERR_INVALID,
                          "one \"group: file\" for each item");
    }
    rv = group_of(c, entry, file->folder, &w);
    if (rv < 0) {
        return rv;
    }
    choice = find_choice(c->args, w.folder);
    if (choice && !choice->is_added) {
        mark_used(c->args, w.folder);
        w.place = NULL;
        return strcmp(choice->option, "null") == 0 ? 0
                                                   : push_option(c, &w, choice->option);
    }
    if (entry->kind == YAML_SEQ) {
        file->option = entry->first;
        return 0;
    }
    if (entry->kind != YAML_SCALAR) {
        return blame_item(c, entry, ERR_INVALID, "not the name of a file");
    }
    return yaml_node_is_null(entry) ? 0 : push_option(c, &w, entry->text);
}

/* The next of `- group: [a, b]`. */
static int take_option(struct composer *c, struct open_file *file)
{
    const struct yaml_node *option = file->option;
    struct wanted w = {0};
    int rv;

    file->option = option->next;
    rv = group_of(c, option->parent, file->folder, &w);
    if (rv < 0) {
        return rv;
    }
    w.place = option;
    if (option->kind != YAML_SCALAR) {
        return blame_item(c, option, ERR_INVALID, "not the name of a file");
    }
    return push_option(c, &w, option->text);
}

static int take_item(struct composer *c, struct open_file *file)
{
    struct yaml_node *item = file->item;
    struct wanted w = {.place = item};

    file->item = item->next;
    if (item->kind == YAML_MAP) {
        return take_group(c, file, item->first);
    }
    if (item->kind != YAML_SCALAR) {
        return blame_item(c, item, ERR_INVALID, "\"- file\" or \"- group: file\"");
    }
    if (strcmp(item->text, "_self_") == 0) {
        merge_top(c);
        return 0;
    }
    if (set_wanted(file->folder, item->text, &w) < 0) {
        return blame_item(c, item, ERR_INVALID, "not the name of a file");
    }
    return push_wanted(c, &w);
}

static int run(struct composer *c)
{
    int rv = 0;

    while (rv == 0 && c->n_open > 0) {
        struct open_file *file = &c->open[c->n_open - 1];

        if (file->option) {
            rv = take_option(c, file);
        } else if (file->item) {
            rv = take_item(c, file);
        } else {
            merge_top(c);
            c->n_open--;
        }
    }
    return rv;
}

/* The folder is there, and a folder. Its default is told from one that was given. */
static int check_folder(const struct config_args *args, struct errmsg *msg)
{
    struct stat st;

    if (stat(args->dir, &st) < 0 && errno == ENOENT && !args->has_dir) {
        return errmsg_set(msg, ERR_MISSING,
                          "--config-name=%s: there is no folder \"%s\" here; "
                          "--config-path=DIR says where the file lies",
                          args->name, args->dir);
    }
    if (stat(args->dir, &st) < 0) {
        return errmsg_set(msg, -errno, "--config-path: %s: %s", args->dir,
                          err_text(-errno));
    }
    if (!S_ISDIR(st.st_mode)) {
        return errmsg_set(msg, ERR_INVALID,
                          "--config-path: %s is a file, not a folder: use "
                          "--config-path=DIR --config-name=NAME",
                          args->dir);
    }
    return 0;
}

static int compose_primary(struct composer *c)
{
    const char *name = c->args->name;
    char beside[LIST_TEXT_MAX];
    char path[PATH_TEXT_MAX];
    const char *ending;
    int rv;

    (void)stem(name, &ending);
    if (!str_format(path, sizeof(path), "%s%s%s%s", name[0] == '/' ? "" : c->args->dir,
                    name[0] == '/' ? "" : "/", name, ending[0] ? "" : ".yaml")) {
        return errmsg_set(c->msg, ERR_TOO_LARGE, "--config-name: too long a path");
    }
    rv = push_path(c, path, "");
    if (rv == -ENOENT) {
        list_beside(path, beside, sizeof(beside));
        return errmsg_set(c->msg, rv, "%s: %s%s", path, err_text(rv), beside);
    }
    return rv < 0 ? rv : run(c);
}

/* "+model=x" comes after the files; "model=x" must have met its group in a list. */
static int compose_choices(struct composer *c)
{
    for (size_t i = 0; i < c->args->n_choices; i++) {
        struct config_choice *choice = &c->args->choice[i];
        struct wanted w = {0};
        int rv;

        if (choice->is_used) {
            continue;
        }
        if (!choice->is_added) {
            return errmsg_set(
                c->msg, ERR_INVALID,
                CONFIG_COMMAND_LINE
                ": \"%s=%s\" chooses the file %s/%s.yaml, but no defaults list names "
                "the group \"%s\": \"+%s=%s\" adds it; a key is set as %s.KEY=…",
                choice->group, choice->option, choice->group, choice->option,
                choice->group, choice->group, choice->option, choice->group);
        }
        memcpy(w.folder, choice->group, sizeof(w.folder));
        rv = push_option(c, &w, choice->option);
        rv = rv < 0 ? rv : run(c);
        if (rv < 0) {
            return rv;
        }
    }
    return 0;
}

int config_compose(struct config_args *args, struct yaml_tree *tree,
                   struct yaml_node *root, struct errmsg *msg)
{
    struct composer c = {.args = args, .tree = tree, .root = root, .msg = msg};
    bool is_absolute = args->name && args->name[0] == '/';
    int rv = 0;

    if (args->has_dir || (args->name && !is_absolute)) {
        rv = check_folder(args, msg);
    }
    if (rv == 0 && args->has_dir && !args->name && args->n_choices == 0) {
        rv = errmsg_set(msg, ERR_INVALID,
                        "--config-path=%s names a folder, but no file is chosen: add "
                        "--config-name=NAME",
                        args->dir);
    }
    if (rv == 0 && args->name) {
        rv = compose_primary(&c);
    }
    return rv < 0 ? rv : compose_choices(&c);
}
