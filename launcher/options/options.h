#ifndef LAUNCHER_OPTIONS_OPTIONS_H
#define LAUNCHER_OPTIONS_OPTIONS_H

/* PURE. ctrun's command line, torchrun's: `ctrun [options] program [arguments …]`. One
 * table makes parsing, the PET_… variables, --help and the refusal by name of what is
 * not there yet. */

#include "launcher/options/signals.h"
#include "launcher/output/redirects.h"
#include "launcher/rdzv/keys.h"
#include "launcher/store/access.h"

#include "common/err.h"
#include "common/msg.h"

#include <stdbool.h>
#include <stdint.h>

/* Who serves the rendezvous at the endpoint. */
enum rdzv_serving {
    RDZV_SERVE_OWN_ADDRESS, /* this node, if it has the endpoint's address */
    RDZV_SERVE_ALWAYS,      /* this node, whatever its addresses are */
    RDZV_SERVE_NEVER,
};

/* What is made of the options' table instead of a launch: --print-completion. */
enum table_print { TABLE_NOT, TABLE_BASH, TABLE_ZSH, TABLE_MAN };

enum nproc_kind { NPROC_NUMBER, NPROC_AUTO, NPROC_CPU, NPROC_GPU };

/* What of the machine each worker is bound to (numa.h). */
enum numa_binding {
    NUMA_NONE,
    NUMA_NODE,
    NUMA_SOCKET,
    NUMA_EXCLUSIVE,
    NUMA_CORE_COMPLEX
};

struct launch_options {
    bool help, version;
    enum table_print print;
    bool dry_run, json; /* print what would be started, and start nothing */
    bool standalone;    /* --standalone, or one node and no endpoint */
    uint32_t min_nodes, max_nodes;
    enum nproc_kind nproc_kind;
    uint32_t nproc;      /* NPROC_NUMBER */
    char rdzv_id[256];   /* "" (only with standalone): launch_options_make_id is to be
                            called */
    char rdzv_host[256]; /* "" with standalone */
    int rdzv_port;       /* 0 (only with standalone): any free one */
    bool is_static; /* rdzv_host and _port are the workers' MASTER_ADDR and _PORT */
    enum rdzv_serving serving;
    uint64_t join_timeout_ms, last_call_timeout_ms;
    uint32_t max_restarts;
    char role[MSG_ROLE_MAX];
    char log_dir[1024]; /* "": not given; "/dev/null": no files */
    struct redirects redirects;
    const char *prefix;     /* of teed lines (line_prefix.h); NULL: not given */
    const char *filters[2]; /* of stdout, stderr (line_filter.h); NULL: not given */
    uint64_t log_max_size;  /* 0: not given */
    char local_addr[256];   /* number or name; "": not given */
    int32_t node_rank;      /* -1: not given */
    enum store_access store_access;
    struct keys_files keys; /* --rdzv-secret-file, --tls-… */
    bool module, no_python, run_path;
    bool logs_events; /* a line of JSON on stderr for what becomes of each worker */
    char note[320];   /* what was asked for without an effect; "": nothing */
    struct signal_set signals; /* --signals-to-handle */
    uint32_t shutdown_s;       /* --shutdown-timeout */
    bool has_shutdown_s;       /* … was given */
    enum hang_policy on_hang;
    bool virtual_local_rank;
    enum numa_binding numa_binding;
    /* Borrowed from argv: program and its arguments, NULL at the end. */
    char *const *program;
    const char *verb; /* "ckpt": the first argument, when it is exactly a verb; then
                         `program` is the verb and what follows */
};

/* `env`: where PET_… variables stand for options that are not on the command line.
 * ERR_INVALID with one line (cause and remedy). */
int launch_options_parse(int argc, char *const *argv, char *const *env,
                         struct launch_options *ret, struct errmsg *msg) MUST_CHECK;

/* TORCH_ELASTIC_SHUTDOWN_TIMEOUT (NULL: unset) holds where no option was given. */
int launch_options_shutdown_env(struct launch_options *o, const char *value,
                                struct errmsg *msg) MUST_CHECK;

/* The text of --help (mem_alloc'ed). */
char *launch_options_help(void);

/* The text that is asked for; not TABLE_NOT. mem_alloc'ed. */
char *launch_options_print(enum table_print print);

/* A random UUID (version 4) as rdzv_id, made of 16 random bytes. */
void launch_options_make_id(struct launch_options *o, const uint8_t random[16]);

#endif
