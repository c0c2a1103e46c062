#include "launcher/options/options_core.h"

#include "common/check.h"
#include "common/msg.h"

enum { MAX_RESTARTS = 1000000 };

#define FIELD(member)                         \
    .offset = offsetof(struct parse, member), \
    .size = sizeof(((struct parse *)0)->member)

#define OF_THE_WORKER "an option of ctrun-worker: put it behind the program"
#define OF_THE_SERVICE                                                           \
    "an option of ctrun-rendezvous, which the server inside ctrun has not: run " \
    "ctrun-rendezvous, and name it by --rdzv-endpoint"

static const struct option_spec specs[] = {
    {.name = "nnodes",
     .value = "N|MIN:MAX",
     .set = launch_on_nnodes,
     .help = "Number of nodes, or the least and the most of them (default 1).",
     .more =
         "With a range the job starts, and goes on, with any number in it; nodes "
         "whose ranks ctrun-worker(1) cannot use stand by and take over when another "
         "is lost."},
    {.name = "nproc-per-node",
     .value = "N|auto|cpu|gpu",
     .set = launch_on_nproc,
     .help =
         "Workers on this node: a number, one for each CPU or GPU, or auto: GPUs if "
         "there are any, else CPUs (default 1).",
     .more = "Nodes may differ."},
    {.name = "standalone",
     .set = option_set_true,
     FIELD(o.standalone),
     .help = "One node that needs no endpoint: a free port and a random id.",
     .more = "It overrides --rdzv-endpoint and --rdzv-id. One node without an endpoint "
             "is the same, but keeps an id that was given."},
    {.name = "rdzv-id",
     .value = "ID",
     .set = launch_on_rdzv_id,
     FIELD(o.rdzv_id),
     .help = "The job's name, the same on all nodes (default: the word none; a random "
             "one with one node and no endpoint).",
     .more = "It may not have a slash in it."},
    {.name = "rdzv-backend",
     .value = "c10d|static",
     .set = launch_on_rdzv_backend,
     .help =
         "c10d: nodes meet at the endpoint and may come and go. static: a world of "
         "--nnodes nodes, ranked by --node-rank, whose workers are told the endpoint "
         "as MASTER_ADDR and MASTER_PORT (default: static for several nodes without "
         "an endpoint, or with --master-addr or --master-port; else c10d).",
     .more = "With static, node rank 0 serves at the endpoint, whatever its addresses "
             "are, and the workers of all nodes (but ctrun-worker's) are told the "
             "endpoint exactly as this node's command has it."},
    {.name = "rdzv-endpoint",
     .value = "HOST[:PORT]",
     .set = option_set_any_text,
     FIELD(endpoint),
     .help =
         "Where the rendezvous is, the same on all nodes. The node that owns the "
         "address serves it, unless ctrun-rendezvous does (default: localhost:29400 "
         "with c10d, --master-addr and --master-port with static; a free port with one "
         "node).",
     .more =
         "29400 is also the port of a host without one. A job of one node that has no "
         "--rdzv-id takes a free port, too, where another job's ctrun has this one. Jobs "
         "of different --rdzv-id may share an endpoint, but the service inside ctrun ends "
         "with the job of the node that serves, and the others begin anew then, from "
         "their last checkpoints and uncounted: ports of their own, or "
         "ctrun-rendezvous, spare them that."},
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
         "longest wait for more of them once there are MIN; is_host: 1 if this node is "
         "to serve the rendezvous whatever its addresses are, 0 if it is not to; "
         "timeout (900): the static backend's join_timeout. torchrun's other keys have "
         "no effect, unknown ones are refused.",
     .more = "Without effect, but checked, are close_timeout, heartbeat_timeout, "
             "keep_alive_interval, keep_alive_max_attempt, read_timeout, "
             "cas_backoff_max_seconds, use_libuv, rank and store_type=tcp: one service "
             "decides, and a node's death shows at its connection. Unknown keys are "
             "refused because torchrun would ignore a misspelt time-out."},
    {.name = "max-restarts",
     .value = "N",
     .set = option_set_u32,
     .max = MAX_RESTARTS,
     FIELD(o.max_restarts),
     .help = "Failures of the whole job after which it is started again (default 0).",
     .more = "Nodes that join or leave do not count."},
    {.name = "node-rank",
     .value = "N",
     .set = launch_on_node_rank,
     .max = MSG_MAX_NODES - 1,
     FIELD(node_rank),
     .help =
         "This node's place among the nodes (default: behind those that have one, by host "
         "name; 0 with the static backend).",
     .more =
         "Nodes without one follow those that have one: first those that had ranks, in "
         "their order, then new ones in the natural order of their host names (node2 "
         "before node10), then in that of joining."},
    {.name = "role",
     .value = "ROLE",
     .set = launch_on_role,
     FIELD(o.role),
     .help =
         "What this node's workers do in the job; nodes may differ. Ranks are numbered "
         "within the role, too: ROLE_RANK, ROLE_WORLD_SIZE (default: default).",
     .more =
         "For programs that ask (ROLE_NAME). Nodes may have different roles, and "
         "different numbers of workers: RANK goes through the nodes in their order, "
         "ROLE_RANK and ROLE_WORLD_SIZE count the workers of the same role."},
    {.name = "virtual-local-rank",
     .set = option_set_true,
     FIELD(o.virtual_local_rank),
     .help = "LOCAL_RANK is 0 for every worker, and CUDA_VISIBLE_DEVICES shows it one "
             "device, its own. (Not for ctrun-worker.)",
     .more =
         "The device is the entry of the list that ctrun was started with whose "
         "number is the worker's number on its node, or that number itself where "
         "there is no list. Where HIP_VISIBLE_DEVICES is not empty, it is that list, "
         "and both are set. A list too short for the workers is refused. "
         "ctrun-worker needs its LOCAL_RANK."},
    {.name = "local-addr",
     .value = "ADDR",
     .set = option_set_any_text,
     FIELD(o.local_addr),
     .help = "The address of this host, in numbers or as a name, at which the other "
             "nodes reach it (default: that of the route to the endpoint).",
     .more =
         "Where the endpoint's name, or the one given here, is a loopback address on "
         "this host: that of the default route, or else of the first interface that "
         "is up, has a carrier, and is not loopback."},
    {.name = "rdzv-secret-file",
     .no_variable = true,
     .value = "FILE",
     .set = option_set_text,
     FIELD(o.keys.secret),
     .help = "The job's secret: the nodes let only those in that have the same, and "
             "encrypt what they say (default: $CTRUN_SECRET_FILE, else "
             "~/.config/ctrun/secret if it is there; 'ctrun keygen' makes it).",
     .more = "Nobody else may read the file. A credential ctrun-secret of systemd "
             "(LoadCredential=) is found, too. Without effect with one node and no "
             "endpoint. FILE.previous, where it is there, is as good for a node that "
             "serves. Files are read again at each new connection."},
    {.name = "tls-ca",
     .no_variable = true,
     .value = "FILE",
     .set = option_set_text,
     FIELD(o.keys.ca),
     .help = "Certificates in the secret's place: the CA of all of them, …",
     .more =
         "Each node has a certificate whose one URI among its names is "
         "ctrun://job/ID/agent/NODE (NODE: its host name or --node-rank; * for any), "
         "a service ctrun://service. 'ctrun keygen --ca DIR' makes some."},
    {.name = "tls-cert",
     .no_variable = true,
     .value = "FILE",
     .set = option_set_text,
     FIELD(o.keys.cert),
     .help = "… this node's certificate, …"},
    {.name = "tls-key",
     .no_variable = true,
     .value = "FILE",
     .set = option_set_text,
     FIELD(o.keys.key),
     .help = "… and its key, which nobody else may read."},
    {.name = "store-access",
     .no_variable = true,
     .value = "auto|local|direct",
     .set = launch_on_store_access,
     .help =
         "Where workers find the store. direct: MASTER_ADDR is the address of rank 0's "
         "node, for sockets of the program's own, too; local: 127.0.0.1 on each node, "
         "passed on by ctrun; auto: direct with several nodes that have no secret, else "
         "local (default).",
     .more =
         "It is what MASTER_ADDR and MASTER_PORT name; the same on all nodes. With "
         "direct the nodes of the job may come there, others are turned away; on one "
         "node the address is --local-addr, or else the one by which other hosts "
         "would reach it. ctrun-worker is always local."},
    {.name = "log-dir",
     .value = "DIR",
     .set = option_set_any_text,
     FIELD(o.log_dir),
     .help =
         "Where the workers' output is kept, a file per rank, stream and start; "
         "/dev/null for none (default: a folder in $TMPDIR, which goes when nothing "
         "failed and none of the options below asked for files). ctrun-worker keeps its "
         "logs in its run directory.",
     .more =
         "The files are DIR/ID_RANDOM/attempt_G/LOCAL_RANK/stdout.log and "
         "stderr.log, G being the generation (the number of the start): no start "
         "writes over another. With /dev/null -r and -t have no effect. The default "
         "is a folder ctrun_ID_RANDOM in $TMPDIR, in which a file comes with its "
         "first line and is bounded (see --log-max-size). It is removed at the end "
         "when no worker has failed in any start, and stays, its name told, where one "
         "of -r, -t, --log-max-size and the duplicate filters asked for files."},
    {.name = "log-max-size",
     .no_variable = true,
     .value = "BYTES",
     .set = launch_on_log_max_size,
     .help = "How large such a file may be, as 10M: then it is renamed to NAME.1 and "
             "begun anew (default: no bound; 8M where nobody asked for files).",
     .more =
         "As 65536, 64K, 10M or 1G. NAME.1 is written over by the next that is full; "
         "so each takes twice that at most."},
    {.name = "redirects",
     .letter = 'r',
     .value = "MASK|LOCAL_RANK:MASK,…",
     .set = launch_on_mask,
     FIELD(o.redirects.redirects),
     .help =
         "What goes to the files only: 0 nothing, 1 stdout, 2 stderr, 3 both, of all "
         "workers or as 0:3,1:2 (default 0).",
     .more = "Files have everything, whatever the mask."},
    {.name = "tee",
     .letter = 't',
     .value = "MASK|LOCAL_RANK:MASK,…",
     .set = launch_on_mask,
     FIELD(o.redirects.tee),
     .help = "What goes to the console with a prefix, and to the files (default 0).",
     .more = "Stronger than --redirects."},
    {.name = "console",
     .no_variable = true,
     .value = "all|none|RANKS",
     .set = launch_on_console,
     FIELD(o.redirects.console),
     .help = "The ranks that the console shows, as 0 or 0,4-7 (default: all; 0 of "
             "ctrun-worker).",
     .more = "The default is rank 0 of ctrun-worker unless one of the filters or --tee "
             "says otherwise."},
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
         "Slurm's warning). One that is not in the list ends ctrun, and its workers, "
         "at once.",
     .more = "Names, with or without SIG, or numbers, with commas between. The list "
             "takes the place of the default; with SIGUSR1 added to it Slurm's warning "
             "(--signal=USR1@SECONDS) reaches the workers. What is unknown in it, or "
             "cannot be handled, is told and left out. See SIGNALS."},
    {.name = "preempt-signal",
     .value = "SIGNAL",
     .set = launch_on_preempt_signal,
     .help =
         "A scheduler's warning that this node will go, one more to handle: USR1 for "
         "sbatch --signal=USR1@90. The workers finish their step, save and leave, the "
         "rest of the job goes on; it counts as no failure.",
     .more = "The same as one more name in --signals-to-handle, whose other names it "
             "leaves alone. See PREEMPTION."},
    {.name = "shutdown-timeout",
     .value = "SECONDS",
     .set = launch_on_shutdown_timeout,
     .help =
         "The time between a signal that is passed on, or word to leave, and KILL "
         "(default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30). After a failure it is "
         "30 at most: a hung rank must not hold up the restart.",
     .more =
         "After a failure ctrun-worker has 5 seconds at most: it has nothing to save "
         "then. Who waits for a lost peer may hang for ever, and the restart waits "
         "for it."},
    {.name = "on-hang",
     .value = "restart|report",
     .set = launch_on_hang,
     .no_variable = true,
     .help =
         "What is done about a rank that stops while the others wait for it: restart "
         "ends it, as a failure of the job; report tells of it on every node and goes on "
         "(default: restart where --max-restarts allows one, else report). All nodes "
         "must say the same.",
     .more =
         "Known are hangs of programs whose ranks all report their progress, as "
         "ctrun-worker's do. A rank that is traced (gdb, strace) is told of, and left "
         "alone. See PROGRESS."},
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
     .value = "spawn|fork|forkserver",
     .set = launch_on_start_method,
     .help =
         "Accepted for torchrun's sake, no effect: workers are always new processes."},
    {.name = "numa-binding",
     .no_variable = true,
     .value = "node|socket|exclusive|core-complex",
     .set = launch_on_numa_binding,
     .help =
         "Bind each worker to the CPUs near its GPU: those of its NUMA node, of its "
         "socket, its share of the node's cores, or the cores under one cache. Without "
         "GPUs the workers are spread over the nodes (default: not bound).",
     .more =
         "A worker's GPU is the one of its number on the node. node: all CPUs of "
         "that GPU's NUMA node; socket: all of that socket; exclusive: its share of "
         "the node's cores, divided among the GPUs there; core-complex: those under "
         "one of the node's last-level caches, which the GPUs there take in turn. "
         "Never CPUs that ctrun itself may not use. GPUs are NVIDIA's, counted in "
         "the order of their PCI addresses, as CUDA does with "
         "CUDA_DEVICE_ORDER=PCI_BUS_ID and wherever all are of one kind; "
         "CUDA_VISIBLE_DEVICES chooses among them by number or UUID. On a node "
         "without GPUs, or where CUDA_VISIBLE_DEVICES is empty, the workers are "
         "spread over the NUMA nodes in blocks, and each counts as a device of its "
         "node. ctrun-worker takes as many threads as its part of the CPUs has. A "
         "binding that cannot be is refused before anything starts."},
    {.name = "dry-run",
     .no_variable = true,
     .set = option_set_true,
     FIELD(o.dry_run),
     .help =
         "Print the command, the environment, the device and the CPUs of each worker "
         "of this node, and start nothing. (Behind ctrun-worker it is that program's, "
         "which shows what the run takes.)",
     .more =
         "Other nodes are taken to be like this one. What only the start can tell, "
         "as a port or a rank in the order of joining, is marked so (null in JSON)."},
    {.name = "json",
     .no_variable = true,
     .set = option_set_true,
     FIELD(o.json),
     .help = "With --dry-run: as one JSON object."},
    {.name = "print-completion",
     .no_variable = true,
     .value = "bash|zsh",
     .set = launch_on_print_completion,
     .help = "Print the completion of ctrun's options for that shell.",
     .more = "scdoc: this list, as it stands in the man page's source."},
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
    {.name = "config-name", .value = "NAME", .elsewhere = OF_THE_WORKER},
    {.name = "config-path", .value = "DIR", .elsewhere = OF_THE_WORKER},
    {.name = "cfg", .value = "KIND", .elsewhere = OF_THE_WORKER},
    {.name = "profile", .value = "STEPS", .elsewhere = OF_THE_WORKER},
    {.name = "http", .value = "ADDR:PORT", .elsewhere = OF_THE_SERVICE},
    {.name = "listen", .value = "ADDR:PORT", .elsewhere = OF_THE_SERVICE},
    {.name = "secrets", .value = "PATH", .elsewhere = OF_THE_SERVICE},
    {.name = "state-dir", .value = "DIR", .elsewhere = OF_THE_SERVICE},
};

const struct options launch_options_table = {"ctrun", specs, ARRAY_LEN(specs)};
