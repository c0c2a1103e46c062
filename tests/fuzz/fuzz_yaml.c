#include "common/mem.h"
#include "common/yaml.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Any bytes are a tree or one clear line; a tree can be walked, named and merged. */

/* libFuzzer's name: NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(struct yaml_node *root)
{
    char path[256];
    size_t n = 0;

    for (struct yaml_node *at = root; at; at = yaml_node_next(root, at)) {
        yaml_node_path(at, path, sizeof(path));
        (void)yaml_node_is_null(at);
        n++;
        if (at->parent && at->parent->kind == YAML_MAP) {
            ASSERT(yaml_node_find(at->parent, at->key) == at);
        }
    }
    ASSERT(n <= YAML_MAX_NODES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct yaml_tree *t = yaml_tree_new();
    char *text = mem_dup(data, size); /* its end is where ASan looks */
    struct yaml_node *first;
    struct yaml_node *second;
    struct errmsg msg = {0};

    if (yaml_read_text(t, "x.yaml", text, size, &first, &msg) < 0) {
        ASSERT(strncmp(msg.text, "x.yaml", 6) == 0);
    } else {
        walk(first);
        if (first->kind == YAML_MAP &&
            yaml_read_text(t, "y.yaml", text, size, &second, &msg) == 0) {
            yaml_merge(first, second);
            walk(first);
        }
    }
    mem_free(text);
    yaml_tree_free(t);
    return 0;
}
