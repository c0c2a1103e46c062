#include "worker/config.h"

#include "worker/config_build.h"
#include "worker/config_table.h"

#include <string.h>

/* The happy path is drawn in config_build.h. */

static int decode_all(struct yaml_node *root, struct train_config *config,
                      struct errmsg *msg)
{
    for (size_t i = 0; i < config_n_keys(); i++) {
        const struct config_key *key = config_key_at(i);
        const struct yaml_node *n = yaml_node_at(root, key->path);
        int rv;

        ASSERT(n); /* config_fill saw to it */
        rv = config_key_decode(key, n, config, msg);
        if (rv < 0) {
            return rv;
        }
    }
    if (config->model.kv_heads == 0) {
        config->model.kv_heads = config->model.heads;
    }
    return 0;
}

static int build(struct config_args *args, struct yaml_tree *tree,
                 struct train_config *config, struct errmsg *msg)
{
    struct yaml_node *root = yaml_node_new(tree, YAML_MAP, CONFIG_COMMAND_LINE, NULL);
    int rv;

    rv = config_compose(args, tree, root, msg);
    if (rv == 0) {
        rv = config_override(args, tree, root, msg);
    }
    if (rv == 0) {
        rv = config_fill(tree, root, msg);
    }
    if (rv == 0) {
        rv = config_interpolate(tree, root, msg);
    }
    return rv < 0 ? rv : decode_all(root, config, msg);
}

int config_parse(int argc, char *const *argv, struct worker_options *ret,
                 struct errmsg *msg)
{
    struct config_args args;
    int rv;

    memset(ret, 0, sizeof(*ret)); /* all of it: two parses compare equal by memcmp */
    rv = config_args_parse(argc, argv, &args, ret, msg);
    if (rv == 0 && !ret->help && !ret->version) {
        struct yaml_tree *tree = yaml_tree_new();

        rv = build(&args, tree, &ret->config, msg);
        yaml_tree_free(tree);
    }
    config_args_release(&args);
    return rv < 0 ? ERR_INVALID : 0; /* whatever it was, the user has to mend it */
}
