#include "worker/parallel/mesh.h"

#include "common/str.h"

#include <string.h>

/* ddp, zero1, zero2 and fsdp have one axis; `shards`: it is dp_shard. */
static int make_line(const struct mesh_wish *w, bool shards, struct mesh *ret,
                     struct errmsg *msg)
{
    int along = shards ? w->dp_shard : w->dp_replicate;
    int across = shards ? w->dp_replicate : w->dp_shard;
    const char *name = shards ? "dp_shard" : "dp_replicate";
    const char *other = shards ? "dp_replicate" : "dp_shard";

    if (across > 1) {
        return errmsg_set(msg, ERR_INVALID,
                          "parallel.%s=%d: parallel.strategy=%s has no such axis; set "
                          "it to auto, or parallel.strategy=hsdp",
                          other, across, w->strategy);
    }
    if (along != 0 && along != w->world_size) {
        return errmsg_set(msg, ERR_INVALID,
                          "parallel.%s=%d, but there %s %d rank%s: set it to auto",
                          name, along, w->world_size > 1 ? "are" : "is", w->world_size,
                          w->world_size > 1 ? "s" : "");
    }
    *ret = shards ? (struct mesh){1, w->world_size} : (struct mesh){w->world_size, 1};
    return 0;
}

/* One is 0: what the other leaves. */
static int make_rest(const struct mesh_wish *w, int replicate, int shard,
                     struct mesh *ret, struct errmsg *msg)
{
    int given = replicate + shard;
    int rest = w->world_size / given;

    if (w->world_size % given != 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "parallel.%s=%d does not divide the %d rank%s there %s: set "
                          "it to a divisor of %d, or to auto",
                          shard > 0 ? "dp_shard" : "dp_replicate", given, w->world_size,
                          w->world_size > 1 ? "s that" : " that",
                          w->world_size > 1 ? "are" : "is", w->world_size);
    }
    *ret = shard > 0 ? (struct mesh){rest, shard} : (struct mesh){replicate, rest};
    return 0;
}

/* Both on auto: a shard for each rank of a node, a replica for each node. Where nodes
 * differ, one replica: as an elastic job changes, it must go on, and in no more
 * memory. */
static int make_grid(const struct mesh_wish *w, struct mesh *ret, struct errmsg *msg)
{
    int replicate = w->dp_replicate, shard = w->dp_shard;

    if (replicate == 0 && shard == 0) {
        shard = w->node_size > 0 ? w->node_size : w->world_size;
    }
    if (replicate == 0 || shard == 0) {
        return make_rest(w, replicate, shard, ret, msg);
    }
    if ((long)replicate * shard != w->world_size) {
        return errmsg_set(msg, ERR_INVALID,
                          "parallel.dp_replicate=%d x parallel.dp_shard=%d are not the "
                          "%d ranks that there are: set one of them to auto, the other "
                          "to a divisor of %d",
                          replicate, shard, w->world_size, w->world_size);
    }
    *ret = (struct mesh){replicate, shard};
    return 0;
}

int mesh_make(const struct mesh_wish *wish, struct mesh *ret, struct errmsg *msg)
{
    return wish->replicates ? make_grid(wish, ret, msg)
                            : make_line(wish, wish->zero.optimizer, ret, msg);
}

/* "1, 2, 3, 6"; as many as fit. */
static void list_divisors(int n, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 1; i <= n; i++) {
        if (n % i != 0) {
            continue;
        }
        if (!str_format(text + used, size - used, "%s%d", i > 1 ? ", " : "", i)) {
            text[used] = '\0'; /* half a number would be another */
            return;
        }
        used += strlen(text + used);
    }
}

int mesh_check_reshard(const struct mesh *m, int n, struct errmsg *msg)
{
    char divisors[200];

    if (n > 0 && m->dp_shard % n == 0) {
        return 0;
    }
    list_divisors(m->dp_shard, divisors, sizeof(divisors));
    return errmsg_set(msg, ERR_INVALID,
                      "parallel.reshard_after_forward=%d does not divide the %d rank%s "
                      "of a copy: set it to true, or to a divisor (%s)",
                      n, m->dp_shard, m->dp_shard > 1 ? "s" : "", divisors);
}
