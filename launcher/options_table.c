#include "launcher/options_core.h"

#include "common/check.h"
#include "common/msg.h"

enum { MAX_RESTARTS = 1000000 };

#define FIELD(member)                         \
    .offset = offsetof(struct parse, member), \
    .size = sizeof(((struct parse *)0)->member)

#define OF_THE_WORKER "an option of ctrun-worker: put it behind the program"

static const struct option_spec specs[] = {
    {.name = "nnodes",
     .value = "N|MIN:MAX",
     .set = launch_on_nnodes,
     .help = "Number of nodes, or the least and the most of them (default 1)."},
    {.name = "nproc-per-node",
     .value = "N|auto|cpu|gpu",
     .set = launch_on_nproc,
     .help =
         "Workers on this node: a number, one for each CPU or GPU, or auto: GPUs if "
         "there are any, else CPUs (default 1)."},
    {.name = "standalone",
     .set = option_set_true,
     FIELD(o.standalone),
     .help = "One node that needs no endpoint: a free port and a random id."},
    {.name = "rdzv-id",
     .value = "ID",
     .set = launch_on_rdzv_id,
     FIELD(o.rdzv_id),
     .help = "The job's name, the same on all nodes (default: the word none; a random "
             "one with one node and no endpoint)."},
    {.name = "rdzv-backend",
     .value = "c10d|static",
     .set = launch_on_rdzv_backend,
     .help =
         "c10d: nodes meet at the endpoint and may come and go. static: a world of "
         "--nnodes nodes, ranked by --node-rank, whose workers are told the endpoint "
         "as MASTER_ADDR and MASTER_PORT (default: static for several nodes without "
         "an endpoint, or with --master-addr or --master-port; else c10d)."},
    {.name = "rdzv-endpoint",
     .value = "HOST[:PORT]",
     .set = option_set_any_text,
     FIELD(endpoint),
     .help =
         "Where the rendezvous is, the same on all nodes. The node that owns the "
         "address serves it, unless ctrun-rendezvous does (default: localhost:29400 with "
         "c10d, --master-addr and --master-port with static; a free port with one "
         "node)."},
    {.name = "master-addr",
     .value = "HOST",
     .set = option_set_any_text,
     FIELD(master_addr),
     .help = "The static backend's endpoint without --rdzv-endpoint: the host of node "
             "rank 0, which serves there (default 127.0.0.1)."},
    {.name = "master-port",
     .value = "PORT",
     .set = launch_on_master_port,
     .max = 65535,
     FIELD(master_port),
     .help = "… and its port (default 29500; a free one with one node)."},
    {.name = "rdzv-conf",
     .value = "KEY=VALUE,…",
     .set = launch_on_rdzv_conf,
     .help =
         "join_timeout (600): seconds to wait for nodes; last_call_timeout (30): the "
         "longest wait for more of them once there are MIN; is_host: 1 if this node is to "
         "serve the rendezvous whatever its addresses are, 0 if it is not to; timeout (900): "
         "the static backend's join_timeout. torchrun's "
         "other keys have no effect, unknown ones are refused."},
    {.name = "max-restarts",
     .value = "N",
     .set = option_set_u32,
     .max = MAX_RESTARTS,
     FIELD(o.max_restarts),
     .help = "Failures of the whole job after which it is started again (default 0)."},
    {.name = "node-rank",
     .value = "N",
     .set = launch_on_node_rank,
     .max = MSG_MAX_NODES - 1,
     FIELD(node_rank),
     .help =
         "This node's place among the nodes (default: in the order of joining; 0 with "
         "the static backend)."},
    {.name = "role",
     .value = "ROLE",
     .set = launch_on_role,
     FIELD(o.role),
     .help =
         "What this node's workers do in the job; nodes may differ. Ranks are numbered "
         "within the role, too: ROLE_RANK, ROLE_WORLD_SIZE (default: default)."},
    {.name = "virtual-local-rank",
     .set = option_set_true,
     FIELD(o.virtual_local_rank),
     .help = "LOCAL_RANK is 0 for every worker, and CUDA_VISIBLE_DEVICES shows it one "
             "device, its own. (Not for ctrun-worker.)"},
    {.name = "local-addr",
     .value = "ADDR",
     .set = option_set_any_text,
     FIELD(o.local_addr),
     .help = "The address of this host, in numbers or as a name, at which the other "
             "nodes reach it (default: that of the route to the endpoint)."},
    {.name = "store-access",
     .no_variable = true,
     .value = "auto|local|direct",
     .set = launch_on_store_access,
     .help =
         "Where workers find the store. direct: MASTER_ADDR is the address of rank 0's "
         "node, for sockets of the program's own, too; local: 127.0.0.1 on each node, "
         "passed on by ctrun; auto: direct with several nodes, else local (default)."},
    {.name = "log-dir",
     .value = "DIR",
     .set = option_set_any_text,
     FIELD(o.log_dir),
     .help =
         "Where the workers' output is kept, a file per rank, stream and start; "
         "/dev/null for none (default: a folder in $TMPDIR, which goes when all ended "
         "well and none of the options below asked for files). ctrun-worker keeps its "
         "logs in its run directory."},
    {.name = "log-max-size",
     .no_variable = true,
     .value = "BYTES",
     .set = launch_on_log_max_size,
     .help = "How large such a file may be, as 10M: then it is renamed to NAME.1 and "
             "begun anew (default: no bound; 8M where nobody asked for files)."},
    {.name = "redirects",
     .letter = 'r',
     .value = "MASK|LOCAL_RANK:MASK,…",
     .set = launch_on_mask,
     FIELD(o.redirects.redirects),
     .help =
         "What goes to the files only: 0 nothing, 1 stdout, 2 stderr, 3 both, of all "
         "workers or as 0:3,1:2 (default 0)."},
    {.name = "tee",
     .letter = 't',
     .value = "MASK|LOCAL_RANK:MASK,…",
     .set = launch_on_mask,
     FIELD(o.redirects.tee),
     .help = "What goes to the console with a prefix, and to the files (default 0)."},
    {.name = "console",
     .no_variable = true,
     .value = "all|none|RANKS",
     .set = launch_on_console,
     FIELD(o.redirects.console),
     .help = "The ranks that the console shows, as 0 or 0,4-7 (default: all; 0 of "
             "ctrun-worker)."},
    {.name = "ranks-filter",
     .no_variable = true,
     .value = "RANKS",
     .set = launch_on_ranks,
     FIELD(o.redirects.ranks),
     .help = "Shows only these ranks on the console and in the filtered files."},
    {.name = "local-ranks-filter",
     .value = "RANKS",
     .set = launch_on_ranks,
     FIELD(o.redirects.local_ranks),
     .help = "The same by their number on the node."},
    {.name = "log-line-prefix-template",
     .value = "TEXT",
     .set = launch_on_prefix,
     FIELD(o.prefix),
     .help =
         "The prefix of --tee, with ${role_name}, ${rank}, ${local_rank}, "
         "${hostname}, ${time} (default $TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else "
         "[${role_name}${local_rank}]:)."},
    {.name = "duplicate-stdout-filters",
     .value = "TEXT,…",
     .set = launch_on_filters,
     FIELD(o.filters[0]),
     .help = "Lines of --tee's stdout with one of the texts (,, is a comma) also go to "
             "filtered_stdout.log, of all workers of the node."},
    {.name = "duplicate-stderr-filters",
     .value = "TEXT,…",
     .set = launch_on_filters,
     FIELD(o.filters[1]),
     .help = "The same for stderr and filtered_stderr.log."},
    {.name = "module",
     .letter = 'm',
     .set = option_set_true,
     FIELD(o.module),
     .help = "The program is a Python module: python -u -m PROGRAM."},
    {.name = "no-python",
     .set = option_set_true,
     FIELD(o.no_python),
     .help = "Execute the program itself, whatever it is."},
    {.name = "signals-to-handle",
     .value = "SIGNALS",
     .set = launch_on_signals,
     .help =
         "The signals that stop the job: each is passed on to the workers, which are "
         "killed when their time is up (default " SIGNALS_DEFAULT "; add SIGUSR1 for "
         "Slurm's warning). One that is not in the list ends ctrun, and its workers, at "
         "once."},
    {.name = "shutdown-timeout",
     .value = "SECONDS",
     .set = launch_on_shutdown_timeout,
     .help =
         "The time between a signal that is passed on, or word to leave, and KILL "
         "(default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30). After a failure it is "
         "30 at most: a hung rank must not hold up the restart."},
    {.name = "run-path",
     .set = option_set_true,
     FIELD(o.run_path),
     .help = "Run the script by Python's runpy.run_path, in a process of its own; "
             "--module and --no-python have no effect then."},
    {.name = "event-log-handler",
     .value = "null|console",
     .set = launch_on_event_log_handler,
     .help =
         "console: a line of JSON on stderr when a worker starts or ends, and at the "
         "end, as torchrun's (default null: none)."},
    {.name = "monitor-interval",
     .value = "SECONDS",
     .set = launch_on_monitor_interval,
     .help =
         "Accepted for torchrun's sake, no effect: a worker's end is seen at once."},
    {.name = "start-method",
     .value = "METHOD",
     .set = launch_on_start_method,
     .help = "spawn, fork or forkserver: accepted for torchrun's sake, no effect."},
    {.name = "numa-binding",
     .no_variable = true,
     .value = "node|socket|exclusive|core-complex",
     .set = launch_on_numa_binding,
     .help =
         "Bind each worker to the CPUs near its GPU: those of its NUMA node, of its "
         "socket, its share of the node's cores, or the cores under one cache. Without "
         "GPUs the workers are spread over the nodes (default: not bound)."},
    {.name = "dry-run",
     .no_variable = true,
     .set = option_set_true,
     FIELD(o.dry_run),
     .help =
         "Print the command, the environment, the device and the CPUs of each worker "
         "of this node, and start nothing. (Behind ctrun-worker it is that program's, "
         "which shows what the run takes.)"},
    {.name = "json",
     .no_variable = true,
     .set = option_set_true,
     FIELD(o.json),
     .help = "With --dry-run: as one JSON object."},
    {.name = "help",
     .letter = 'h',
     .no_variable = true,
     .set = option_set_help,
     FIELD(o.help),
     .help = "Show this text."},
    {.name = "version",
     .no_variable = true,
     .set = option_set_help,
     FIELD(o.version),
     .help = "Show the version."},
    {.name = "logs-specs",
     .value = "NAME",
     .elsewhere =
         "a Python plug-in of torchrun's, for which there is no place here; use -r, -t "
         "and --log-dir"},
    {.name = "print-completion",
     .no_variable = true,
     .value = "SHELL",
     .remedy = "leave the option out"},
    {.name = "config-name", .value = "NAME", .elsewhere = OF_THE_WORKER},
    {.name = "config-path", .value = "DIR", .elsewhere = OF_THE_WORKER},
    {.name = "cfg", .value = "KIND", .elsewhere = OF_THE_WORKER},
    {.name = "profile", .value = "STEPS", .elsewhere = OF_THE_WORKER},
};

const struct options launch_options_table = {"ctrun", specs, ARRAY_LEN(specs)};
