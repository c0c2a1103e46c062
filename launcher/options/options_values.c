#include "launcher/options/options_core.h"

#include "common/msg.h"
#include "common/str.h"
#include "common/utf8.h"

#include <string.h>

enum { MAX_NPROC = 16384 };

static int parse_count(const char *text, size_t len, uint32_t *ret)
{
    char copy[16];
    uint64_t v;

    if (len >= sizeof(copy)) {
        return ERR_INVALID;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (str_parse_u64(copy, &v) < 0 || v < 1 || v > MSG_MAX_NODES) {
        return ERR_INVALID;
    }
    *ret = (uint32_t)v;
    return 0;
}

int launch_on_nnodes(void *target, const struct option_spec *spec, const char *value,
                     struct errmsg *msg)
{
    struct parse *p = target;
    const char *colon = strchr(value, ':');
    size_t len = colon ? (size_t)(colon - value) : strlen(value);
    const char *last = colon ? colon + 1 : value;
    uint32_t min;
    uint32_t max;

    (void)spec;
    if (parse_count(value, len, &min) < 0 ||
        parse_count(last, strlen(last), &max) < 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects N or MIN:MAX, numbers from 1 to %d, not '%.80s'",
                          MSG_MAX_NODES, value);
    }
    if (min > max) {
        return errmsg_set(msg, ERR_INVALID, "MIN %u is above MAX %u", min, max);
    }
    p->o.min_nodes = min;
    p->o.max_nodes = max;
    return 0;
}

int launch_on_nproc(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg)
{
    static const char *const words[] = {
        [NPROC_AUTO] = "auto", [NPROC_CPU] = "cpu", [NPROC_GPU] = "gpu"};
    struct parse *p = target;
    uint64_t v;

    (void)spec;
    for (size_t i = NPROC_AUTO; i < ARRAY_LEN(words); i++) {
        if (strcmp(value, words[i]) == 0) {
            p->o.nproc_kind = (enum nproc_kind)i;
            return 0;
        }
    }
    if (strcmp(value, "xpu") == 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "xpu: Intel's GPUs cannot be counted here; give the number "
                          "of workers");
    }
    if (str_parse_u64(value, &v) < 0 || v < 1 || v > MAX_NPROC) {
        return errmsg_set(
            msg, ERR_INVALID,
            "expects a number from 1 to %d, auto, cpu or gpu, not '%.80s'", MAX_NPROC,
            value);
    }
    p->o.nproc_kind = NPROC_NUMBER;
    p->o.nproc = (uint32_t)v;
    return 0;
}

int launch_on_rdzv_id(void *target, const struct option_spec *spec, const char *value,
                      struct errmsg *msg)
{
    struct parse *p = target;
    int rv;

    rv = option_set_any_text(target, spec, value, msg);
    if (rv < 0) {
        return rv;
    }
    if (!str_is_plain(value)) {
        return errmsg_set(msg, ERR_INVALID,
                          "may not have '/' or control characters: it names a folder");
    }
    if (!utf8_is_name(value)) {
        return errmsg_set(msg, ERR_INVALID,
                          "must be UTF-8, without what cannot be seen or turns the "
                          "text's direction: others see it, and ask for the job by it");
    }
    p->has_id = true; /* an empty one stands for a random one, as torchrun has it */
    return 0;
}

int launch_on_rdzv_backend(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg)
{
    static const char *const words[] = {
        [BACKEND_C10D] = "c10d", [BACKEND_STATIC] = "static"};
    struct parse *p = target;

    (void)spec;
    for (size_t i = BACKEND_C10D; i < ARRAY_LEN(words); i++) {
        if (strcmp(value, words[i]) == 0) {
            p->backend = (enum rdzv_backend)i;
            return 0;
        }
    }
    if (strcmp(value, "etcd") == 0 || strcmp(value, "etcd-v2") == 0) {
        return errmsg_set(
            msg, ERR_INVALID,
            "'%s' is not there; use c10d: the node that owns --rdzv-endpoint, or "
            "ctrun-rendezvous, does what etcd did",
            value);
    }
    return errmsg_set(msg, ERR_INVALID,
                      "'%.80s' is not there, and plug-ins are Python's; use c10d or "
                      "static",
                      value);
}

int launch_on_node_rank(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg)
{
    struct parse *p = target;

    p->has_node_rank = true;
    return option_set_u32(target, spec, value, msg);
}

int launch_on_master_port(void *target, const struct option_spec *spec,
                          const char *value, struct errmsg *msg)
{
    struct parse *p = target;

    p->has_master_port = true;
    return option_set_u32(target, spec, value, msg);
}

int launch_on_numa_binding(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg)
{
    static const char *const words[] = {[NUMA_NODE] = "node",
                                        [NUMA_SOCKET] = "socket",
                                        [NUMA_EXCLUSIVE] = "exclusive",
                                        [NUMA_CORE_COMPLEX] = "core-complex"};
    struct parse *p = target;

    (void)spec;
    for (size_t i = NUMA_NODE; i < ARRAY_LEN(words); i++) {
        if (strcmp(value, words[i]) == 0) {
            p->o.numa_binding = (enum numa_binding)i;
            return 0;
        }
    }
    return errmsg_set(msg, ERR_INVALID,
                      "expects node, socket, exclusive or core-complex, not '%.80s'",
                      value);
}

/* "" is one, too: torchrun takes it. */
int launch_on_role(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg)
{
    struct parse *p = target;

    (void)spec;
    if (!utf8_is_name(value)) {
        return errmsg_set(msg, ERR_INVALID,
                          "must be UTF-8, without control characters and what cannot "
                          "be seen or turns the text's direction: others see it");
    }
    if (!str_format(p->o.role, sizeof(p->o.role), "%s", value)) {
        return errmsg_set(msg, ERR_INVALID, "is too long: at most %zu bytes",
                          sizeof(p->o.role) - 1);
    }
    return 0;
}

int launch_on_rdzv_conf(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg)
{
    struct parse *p = target;

    (void)spec;
    return rdzv_conf_parse(value, &p->conf, msg);
}

/* torchrun's, for which there is nothing to do: checked, and that is all. */
int launch_on_monitor_interval(void *target, const struct option_spec *spec,
                               const char *value, struct errmsg *msg)
{
    double seconds;

    (void)target;
    (void)spec;
    if (str_parse_double(value, &seconds) < 0 || seconds <= 0) {
        return errmsg_set(msg, ERR_INVALID,
                          "expects seconds, a number above 0, not '%.80s'", value);
    }
    return 0;
}

int launch_on_store_access(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg)
{
    static const char *const words[] = {[STORE_ACCESS_AUTO] = "auto",
                                        [STORE_ACCESS_LOCAL] = "local",
                                        [STORE_ACCESS_DIRECT] = "direct"};
    struct parse *p = target;

    (void)spec;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcmp(value, words[i]) == 0) {
            p->o.store_access = (enum store_access)i;
            return 0;
        }
    }
    return errmsg_set(msg, ERR_INVALID, "expects auto, local or direct, not '%.80s'",
                      value);
}

int launch_on_event_log_handler(void *target, const struct option_spec *spec,
                                const char *value, struct errmsg *msg)
{
    struct parse *p = target;

    (void)spec;
    p->o.logs_events = strcmp(value, "console") == 0;
    if (p->o.logs_events || strcmp(value, "null") == 0) {
        return 0;
    }
    return errmsg_set(msg, ERR_INVALID,
                      "'%.80s' is not there, and plug-ins are Python's; use null or "
                      "console",
                      value);
}

int launch_on_print_completion(void *target, const struct option_spec *spec,
                               const char *value, struct errmsg *msg)
{
    static const char *const words[] = {
        [TABLE_BASH] = "bash", [TABLE_ZSH] = "zsh", [TABLE_MAN] = "scdoc"};
    struct parse *p = target;

    (void)spec;
    for (size_t i = TABLE_BASH; i < ARRAY_LEN(words); i++) {
        if (strcmp(value, words[i]) == 0) {
            p->o.print = (enum table_print)i;
            return OPTION_STOP;
        }
    }
    return errmsg_set(msg, ERR_INVALID, "'%.80s' is not there; use bash or zsh", value);
}

int launch_on_start_method(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg)
{
    (void)target;
    (void)spec;
    if (strcmp(value, "spawn") == 0 || strcmp(value, "fork") == 0 ||
        strcmp(value, "forkserver") == 0) {
        return 0;
    }
    return errmsg_set(msg, ERR_INVALID,
                      "expects spawn, fork or forkserver, not '%.80s'", value);
}
