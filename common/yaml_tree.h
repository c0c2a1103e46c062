#ifndef COMMON_YAML_TREE_H
#define COMMON_YAML_TREE_H

/* What common/yaml.c needs of a tree beside yaml.h. */

#include "common/yaml.h"

/* A copy of the name that lives as long as the tree. */
const char *yaml_tree_keep_name(struct yaml_tree *t, const char *name);
size_t yaml_tree_size(const struct yaml_tree *t); /* nodes made so far */

/* As yaml_node_new, for a name that yaml_tree_keep_name returned. */
struct yaml_node *yaml_node_new_in(struct yaml_tree *t, enum yaml_kind kind,
                                   const char *kept_name, const char *text);

#endif
