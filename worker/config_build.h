#ifndef WORKER_CONFIG_BUILD_H
#define WORKER_CONFIG_BUILD_H

/* From the command line to the complete tree of values, in this order:
 *
 *   config_args_parse     flags apart from overrides; group choices (model=gpt2-124m)
 *   config_compose        the file and the files that its `defaults:` list names
 *   config_override       a.b=v, +a.b=v, ++a.b=v, ~a.b, from left to right
 *   config_fill           unknown keys are errors; what is not set gets its default
 *   config_interpolate    ${a.b}, ${env:NAME,default}
 *
 * Then every key is decoded (config_table.h). */

#include "worker/config.h"

#include "common/yaml.h"

#define CONFIG_COMMAND_LINE "command line"

enum { CONFIG_MAX_CHOICES = 16, CONFIG_GROUP_MAX = 256 };

/* "model=gpt2-124m": the file that a group takes. */
struct config_choice {
    char group[CONFIG_GROUP_MAX]; /* "model", "model/attention" */
    const char *option;           /* borrowed from argv */
    bool is_added;                /* "+model=…": the defaults list need not name it */
    bool is_used;
};

struct config_args {
    const char *dir,
        *name;    /* --config-path, --config-name; borrowed; name may be NULL */
    bool has_dir; /* dir was given: no default */
    const char **override; /* owned; its texts are borrowed from argv */
    size_t n_overrides;
    struct config_choice choice[CONFIG_MAX_CHOICES];
    size_t n_choices;
};

/* Fills `args` (release it in any case) and the flags of `options`. */
int config_args_parse(int argc, char *const *argv, struct config_args *args,
                      struct worker_options *options, struct errmsg *msg) MUST_CHECK;
void config_args_release(struct config_args *args);

int config_compose(struct config_args *args, struct yaml_tree *tree,
                   struct yaml_node *root, struct errmsg *msg) MUST_CHECK;
int config_override(const struct config_args *args, struct yaml_tree *tree,
                    struct yaml_node *root, struct errmsg *msg) MUST_CHECK;
int config_fill(struct yaml_tree *tree, struct yaml_node *root,
                struct errmsg *msg) MUST_CHECK;
int config_interpolate(struct yaml_tree *tree, struct yaml_node *root,
                       struct errmsg *msg) MUST_CHECK;

/* `unknown key "optim.learning_rate"; nearest: "optim.lr"`, at the key's place. */
int config_blame_unknown(const struct yaml_node *n, const char *path,
                         struct errmsg *msg);

/* The map at "a.b" or "a/b" below root, made where there is none. */
struct yaml_node *config_section(struct yaml_tree *tree, struct yaml_node *root,
                                 const char *path);

#endif
