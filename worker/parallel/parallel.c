/* The list of strategies, and what all have in common. */

#include "worker/parallel/parallel.h"

#include "worker/parallel/zero.h"

#include <string.h>

static const struct parallel_ops *const strategies[] = {
    &ddp_ops, &fsdp_ops, &zero1_ops, &zero2_ops, &hsdp_ops, &dp_ops,
};

int parallel_find(const char *strategy, const struct parallel_ops **ret,
                  struct errmsg *msg)
{
    for (size_t i = 0; i < ARRAY_LEN(strategies); i++) {
        if (strcmp(strategy, strategies[i]->name) == 0) {
            *ret = strategies[i];
            return 0;
        }
    }
    return errmsg_set(msg, ERR_UNSUPPORTED, "parallel.strategy=%s is unknown; use ddp",
                      strategy);
}

int parallel_team(const struct parallel_config *config)
{
    return config->zero.grads ? MAX(config->mesh.dp_shard, 1) : 1;
}

void parallel_own(const struct parallel_config *config, struct shard_map *ret)
{
    int n_shards = MAX(config->mesh.dp_shard, 1);
    struct unit_groups groups;

    unit_groups_make(&groups, config->layout, config->blocks_per_group,
                     config->min_group_params);
    groups.one_owner = config->zero.one_owner;
    shard_map_init(ret, config->layout, &groups, n_shards, config->rank % n_shards);
    unit_groups_release(&groups);
}

static void touch(const struct unit_params *p, int unit)
{
    if (p->begin) {
        (void)p->begin(p->arg, unit);
        p->end(p->arg, unit);
    }
}

void parallel_idle(struct parallel *p, bool backward)
{
    struct unit_params params = p->ops->pass(p, backward);
    struct unit_grads grads;
    float *head;

    for (int u = 0; u < p->n_units; u++) {
        touch(&params, u);
    }
    touch(&params, 0);
    if (!backward) {
        return;
    }
    grads = p->ops->turn(p, &head);
    for (int u = p->n_units - 1; u >= 0; u--) {
        if (u > 0) {
            touch(&params, u);
        }
        (void)grads.begin(grads.arg, u);
        grads.end(grads.arg, u);
    }
}
