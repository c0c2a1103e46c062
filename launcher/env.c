#include "launcher/env.h"

#include "launcher/place/device_list.h"
#include "launcher/texts.h"

#include "common/control.h"
#include "common/mem.h"
#include "common/str.h"

#include <inttypes.h>
#include <string.h>

static void put_text(struct buf *texts, const char *name, const char *value)
{
    char *entry = mem_printf("%s=%s", name, value);

    texts_put(texts, entry);
    mem_free(entry);
}

static void put_number(struct buf *texts, const char *name, uint64_t value)
{
    char text[24];
    bool fits = str_format(text, sizeof(text), "%" PRIu64, value);

    ASSERT(fits);
    put_text(texts, name, text);
}

/* CUDA's variable always: ROCm reads it, too. */
static void put_device(struct buf *texts, char *const *base, uint32_t local_rank)
{
    const char *hip = str_find_variable(base, "HIP_VISIBLE_DEVICES");
    struct device_list list =
        device_list_choose(str_find_variable(base, "CUDA_VISIBLE_DEVICES"), hip);
    char *entry = device_list_entry(&list, local_rank);

    put_text(texts, "CUDA_VISIBLE_DEVICES", entry);
    if (hip && *hip != '\0') {
        put_text(texts, "HIP_VISIBLE_DEVICES", entry);
    }
    mem_free(entry);
}

static void put_ranks(struct buf *texts, const struct worker_env *env)
{
    const struct topology *t = env->topology;
    uint64_t local_rank = env->local_rank;

    put_number(texts, "LOCAL_RANK", env->virtual_local_rank ? 0 : local_rank);
    put_number(texts, "RANK", t->first_rank + local_rank);
    put_number(texts, "GROUP_RANK", t->group_rank);
    put_number(texts, "ROLE_RANK", t->role_first_rank + local_rank);
    put_text(texts, "ROLE_NAME", env->role);
    put_number(texts, "LOCAL_WORLD_SIZE", t->nproc);
    put_number(texts, "WORLD_SIZE", t->world_size);
    put_number(texts, "GROUP_WORLD_SIZE", t->group_world);
    put_number(texts, "ROLE_WORLD_SIZE", t->role_world_size);
}

static void put_descriptor(struct buf *texts, const char *name, int fd)
{
    if (fd >= 0) {
        put_number(texts, name, (uint64_t)fd);
    }
}

/* The contract of torchrun and our own part of it. */
static void put_contract(struct buf *texts, char *const *base,
                         const struct worker_env *env)
{
    put_ranks(texts, env);
    if (env->virtual_local_rank) {
        put_device(texts, base, env->local_rank);
    }
    put_text(texts, "MASTER_ADDR", env->master_addr);
    put_number(texts, "MASTER_PORT", (uint64_t)env->master_port);
    put_number(texts, "TORCHELASTIC_RESTART_COUNT", env->restart_count);
    put_number(texts, "TORCHELASTIC_MAX_RESTARTS", env->max_restarts);
    put_text(texts, "TORCHELASTIC_RUN_ID", env->run_id);
    put_text(texts, "TORCHELASTIC_USE_AGENT_STORE", "True");
    put_text(texts, "TORCHELASTIC_ERROR_FILE", env->error_file);
    put_text(texts, "TORCHELASTIC_SIGNALS_TO_HANDLE", env->signals);
    if (env->timer_file) {
        put_text(texts, "TORCHELASTIC_TIMER_FILE", env->timer_file);
    }
    if (!str_find_variable(base, "TORCH_NCCL_ASYNC_ERROR_HANDLING")) {
        put_text(texts, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    }
    if (env->topology->nproc > 1 && !str_find_variable(base, "OMP_NUM_THREADS")) {
        put_text(texts, "OMP_NUM_THREADS", "1");
    }
    if (env->cpu_share) {
        put_number(texts, CONTROL_CPU_RANK_ENV, env->cpu_share->place);
        put_number(texts, CONTROL_CPU_RANKS_ENV, env->cpu_share->n);
    }
    put_text(texts, "CTRUN_NODE_ADDR", env->node_addr ? env->node_addr : "");
    put_number(texts, CONTROL_GENERATION_ENV, env->generation);
    put_descriptor(texts, CONTROL_FD_ENV, env->control_fd);
    put_descriptor(texts, CONTROL_PROGRESS_ENV, env->progress_fd);
}

/* True when `entry` ("NAME=value") sets a variable that one of `texts` sets, or one
 * that tells of a channel or of CPUs: a ctrun inside a ctrun's worker must not hand on
 * its own. */
static bool is_replaced(const struct buf *texts, const char *entry)
{
    const char *at = (const char *)buf_bytes(texts);
    const char *end = at + buf_len(texts);
    size_t len = strcspn(entry, "=") + 1;

    if (str_starts_with(entry, CONTROL_FD_ENV "=") ||
        str_starts_with(entry, CONTROL_PROGRESS_ENV "=") ||
        str_starts_with(entry, CONTROL_CPU_RANK_ENV "=") ||
        str_starts_with(entry, CONTROL_CPU_RANKS_ENV "=")) {
        return true;
    }
    for (; at < end; at += strlen(at) + 1) {
        if (*at == *entry && strncmp(at, entry, len) == 0) { /* often asked */
            return true;
        }
    }
    return false;
}

char **worker_env_make(char *const *base, const struct worker_env *env)
{
    struct buf texts;
    struct buf ours;
    int rv;

    texts_init(&ours);
    texts_init(&texts);
    put_contract(&ours, base, env);
    for (size_t i = 0; base[i]; i++) {
        if (!is_replaced(&ours, base[i])) {
            texts_put(&texts, base[i]);
        }
    }
    rv = buf_append(&texts, buf_bytes(&ours), buf_len(&ours));
    ASSERT(rv == 0);
    buf_release(&ours);
    return texts_block(&texts);
}

char **worker_env_own(char *const *base, const struct worker_env *env)
{
    struct buf ours;

    texts_init(&ours);
    put_contract(&ours, base, env);
    return texts_block(&ours);
}
