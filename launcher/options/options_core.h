#ifndef LAUNCHER_OPTIONS_OPTIONS_CORE_H
#define LAUNCHER_OPTIONS_OPTIONS_CORE_H

/* What the files of the command line share: options.c (put together, checked),
 * options_table.c (the one table), options_values.c and, for the workers' output,
 * options_output.c (a value's text → what it means), options_rdzv.c (what the
 * rendezvous' options mean together), options_stopping.c (how a job is stopped). */

#include "launcher/options/options.h"
#include "launcher/options/rdzv_conf.h"

#include "common/options.h"

enum rdzv_backend { BACKEND_UNNAMED, BACKEND_C10D, BACKEND_STATIC };

/* What the command line said, before it is put together. */
struct parse {
    struct launch_options o;
    enum rdzv_backend backend;
    char endpoint[320];
    char master_addr[256];
    uint32_t master_port;
    bool has_master_port;
    struct rdzv_conf conf;
    bool has_id;
    uint32_t node_rank;
    bool has_node_rank;
    char preempt[32]; /* --preempt-signal; "": none */
    bool has_on_hang;
};

extern const struct options launch_options_table;

/* The rendezvous: which backend, where it is, who serves it, how long it may take
 * (options_rdzv.c). Last, when all is parsed. */
int launch_finish_rdzv(struct parse *p, struct errmsg *msg) MUST_CHECK;

/* --preempt-signal is one of those to handle (options_stopping.c). Last, too. */
void launch_finish_stopping(struct parse *p);

/* The values of options that need more than common/options.h's setters; all option_cb,
 * their target a struct parse. */
int launch_on_nnodes(void *target, const struct option_spec *spec, const char *value,
                     struct errmsg *msg);
int launch_on_nproc(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg);
int launch_on_rdzv_id(void *target, const struct option_spec *spec, const char *value,
                      struct errmsg *msg);
int launch_on_rdzv_backend(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg);
int launch_on_node_rank(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg);
int launch_on_master_port(void *target, const struct option_spec *spec,
                          const char *value, struct errmsg *msg);
int launch_on_numa_binding(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg);
int launch_on_role(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg);
int launch_on_rdzv_conf(void *target, const struct option_spec *spec, const char *value,
                        struct errmsg *msg);
int launch_on_monitor_interval(void *target, const struct option_spec *spec,
                               const char *value, struct errmsg *msg);
int launch_on_signals(void *target, const struct option_spec *spec, const char *value,
                      struct errmsg *msg);
int launch_on_preempt_signal(void *target, const struct option_spec *spec,
                             const char *value, struct errmsg *msg);
int launch_on_shutdown_timeout(void *target, const struct option_spec *spec,
                               const char *value, struct errmsg *msg);
int launch_on_hang(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg);
int launch_on_store_access(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg);
int launch_on_event_log_handler(void *target, const struct option_spec *spec,
                                const char *value, struct errmsg *msg);
int launch_on_print_completion(void *target, const struct option_spec *spec,
                               const char *value, struct errmsg *msg);
int launch_on_start_method(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg);

/* Their target is a const char * in it, but for the last. */
int launch_on_mask(void *target, const struct option_spec *spec, const char *value,
                   struct errmsg *msg);
int launch_on_ranks(void *target, const struct option_spec *spec, const char *value,
                    struct errmsg *msg);
int launch_on_console(void *target, const struct option_spec *spec, const char *value,
                      struct errmsg *msg);
int launch_on_filters(void *target, const struct option_spec *spec, const char *value,
                      struct errmsg *msg);
int launch_on_prefix(void *target, const struct option_spec *spec, const char *value,
                     struct errmsg *msg);
int launch_on_log_max_size(void *target, const struct option_spec *spec,
                           const char *value, struct errmsg *msg);

#endif
