/* ctrun's command line, case by case. */

#include "launcher/options/options_core.h"
#include "tests/lib/cmocka.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAX_ARGS = 16 };

struct line {
    const char *args[MAX_ARGS]; /* without the program's own name */
};

static char *no_variables[] = {NULL};
static char **env = no_variables; /* of the case at hand */

static int parse(const struct line *line, struct launch_options *o, struct errmsg *msg)
{
    static char *argv[MAX_ARGS + 2];
    int argc = 1;

    argv[0] = NULL; /* is not looked at */
    for (size_t i = 0; i < MAX_ARGS && line->args[i]; i++) {
        memcpy(&argv[argc], &line->args[i], sizeof(argv[0]));
        argc++;
    }
    argv[argc] = NULL;
    memset(o, 0xee, sizeof(*o));
    msg->text[0] = '\0';
    return launch_options_parse(argc, argv, env, o, msg);
}

static void accept(const struct line *line, struct launch_options *o)
{
    struct errmsg msg;
    int rv = parse(line, o, &msg);

    if (rv < 0) {
        print_error("%s\n", msg.text);
    }
    assert_int_equal(rv, 0);
}

#define ACCEPT(o, ...) accept(&(const struct line){{__VA_ARGS__}}, o)

static void refuse(const struct line *line, const char *text)
{
    struct launch_options o;
    struct errmsg msg;

    assert_int_equal(parse(line, &o, &msg), ERR_INVALID);
    assert_string_equal(msg.text, text);
}

#define REFUSE(text, ...) refuse(&(const struct line){{__VA_ARGS__}}, text)

static void one_node_without_options_gets_a_free_port_and_a_random_id(void **state)
{
    struct launch_options o;
    uint8_t random[16];

    (void)state;
    ACCEPT(&o, "train.py");
    assert_true(o.standalone);
    assert_int_equal(o.min_nodes, 1);
    assert_int_equal(o.max_nodes, 1);
    assert_int_equal(o.nproc_kind, NPROC_NUMBER);
    assert_int_equal(o.nproc, 1);
    assert_string_equal(o.rdzv_id, "");
    assert_string_equal(o.rdzv_host, "");
    assert_int_equal(o.rdzv_port, 0);
    assert_true(o.join_timeout_ms == 600000);
    assert_true(o.last_call_timeout_ms == 30000);
    assert_int_equal(o.max_restarts, 0);
    assert_string_equal(o.log_dir, "");
    assert_string_equal(o.local_addr, "");
    assert_int_equal(o.node_rank, -1);
    assert_false(o.module || o.no_python || o.help || o.version);
    assert_null(o.verb);
    assert_string_equal(o.program[0], "train.py");
    assert_null(o.program[1]);
    for (size_t i = 0; i < sizeof(random); i++) {
        random[i] = (uint8_t)(i * 17);
    }
    launch_options_make_id(&o, random);
    assert_string_equal(o.rdzv_id, "00112233-4455-4677-8899-aabbccddeeff");
}

static void both_spellings_and_both_ways_to_give_a_value_are_alike(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--nproc-per-node=3", "--max_restarts", "5", "a");
    assert_int_equal(o.nproc, 3);
    assert_int_equal(o.max_restarts, 5);
    ACCEPT(&o, "--nproc_per_node", "gpu", "--max-restarts=0", "a");
    assert_int_equal(o.nproc_kind, NPROC_GPU);
    ACCEPT(&o, "--nproc-per_node=auto", "a");
    assert_int_equal(o.nproc_kind, NPROC_AUTO);
    ACCEPT(&o, "--nproc-per-node=cpu", "a");
    assert_int_equal(o.nproc_kind, NPROC_CPU);
    ACCEPT(&o, "--no_python", "a");
    assert_true(o.no_python);
    ACCEPT(&o, "--nproc-per-node=2", "--nproc-per-node=4",
           "a"); /* the last one counts */
    assert_int_equal(o.nproc, 4);
}

static void
unique_prefixes_are_accepted_and_ambiguous_ones_name_the_candidates(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--nproc=2", "--max=1", "--stand", "a");
    assert_int_equal(o.nproc, 2);
    assert_int_equal(o.max_restarts, 1);
    assert_true(o.standalone);
    REFUSE(
        "--rdzv could be any of --rdzv-id, --rdzv-backend, --rdzv-endpoint, --rdzv-conf; "
        "write more of it",
        "--rdzv=x", "a");
    REFUSE("--n could be any of --nnodes, --nproc-per-node, --node-rank, --no-python, "
           "--numa-binding; write more of it",
           "--n", "2", "a");
}

static void arguments_behind_the_program_are_its_own(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--nproc-per-node=2", "train.py", "--nnodes=9", "--", "-x", "--help");
    assert_string_equal(o.program[0], "train.py");
    assert_string_equal(o.program[1], "--nnodes=9");
    assert_string_equal(o.program[2], "--");
    assert_string_equal(o.program[3], "-x");
    assert_string_equal(o.program[4], "--help");
    assert_null(o.program[5]);
    assert_false(o.help);
    assert_int_equal(o.max_nodes, 1);
    ACCEPT(&o, "--standalone", "--", "--odd-name.py", "--", "x");
    assert_string_equal(o.program[0], "--odd-name.py");
    assert_string_equal(o.program[1], "--");
    assert_string_equal(o.program[2], "x");
}

static void several_nodes_meet_at_the_endpoint(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--nnodes=1:2", "a");
    assert_false(o.standalone || o.is_static);
    assert_string_equal(o.rdzv_host, "localhost");
    assert_int_equal(o.rdzv_port, 29400);
    assert_string_equal(o.rdzv_id, "none");
    ACCEPT(&o, "--nnodes=2", "--rdzv-backend=c10d", "a");
    assert_false(o.is_static);
    assert_int_equal(o.rdzv_port, 29400);
    ACCEPT(&o, "--nnodes=1:4", "--rdzv-endpoint=node0", "--rdzv-id=job7",
           "--node-rank=3", "--local-addr=10.0.0.3", "a");
    assert_int_equal(o.min_nodes, 1);
    assert_int_equal(o.max_nodes, 4);
    assert_string_equal(o.rdzv_host, "node0");
    assert_int_equal(o.rdzv_port, 29400);
    assert_string_equal(o.rdzv_id, "job7");
    assert_int_equal(o.node_rank, 3);
    assert_string_equal(o.local_addr, "10.0.0.3");
    ACCEPT(&o, "--rdzv-endpoint=[fd00::1]:2000",
           "a"); /* one node, but a service of its own */
    assert_false(o.standalone);
    assert_string_equal(o.rdzv_host, "fd00::1");
    assert_int_equal(o.rdzv_port, 2000);
    assert_string_equal(o.rdzv_id, "none");
    ACCEPT(&o, "--rdzv-endpoint=localhost:0", "--rdzv-id=j", "a");
    assert_true(o.standalone);
    assert_string_equal(o.rdzv_host, "");
    assert_string_equal(o.rdzv_id, "j");
}

/* The articles' command. */
static void static_world_is_at_master_addr_and_port(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--nnodes=2", "--node_rank=0", "--master_addr=10.0.0.1",
           "--master_port=29600", "--nproc_per_node=8", "train.py");
    assert_true(o.is_static);
    assert_false(o.standalone);
    assert_string_equal(o.rdzv_host, "10.0.0.1");
    assert_int_equal(o.rdzv_port, 29600);
    assert_int_equal(o.min_nodes, 2);
    assert_int_equal(o.node_rank, 0);
    assert_int_equal(o.serving, RDZV_SERVE_ALWAYS);
    assert_true(o.join_timeout_ms == 900000);
    assert_string_equal(o.note, "");
    ACCEPT(&o, "--nnodes=2", "--node_rank=1", "--master_addr=node0",
           "--rdzv-conf=timeout=60", "a");
    assert_int_equal(o.rdzv_port, 29500);
    assert_int_equal(o.serving, RDZV_SERVE_NEVER);
    assert_true(o.join_timeout_ms == 60000);
    ACCEPT(&o, "--nnodes=2", "--master_addr=[fd00::1]", "a");
    assert_string_equal(o.rdzv_host, "fd00::1");
    assert_int_equal(o.node_rank, 0);
    assert_int_equal(o.serving, RDZV_SERVE_OWN_ADDRESS); /* it did not say so itself */
    ACCEPT(&o, "--nnodes=2", "--node_rank=1",
           "--rdzv-conf= is_host =1 , join_timeout = 5 ", "a");
    assert_string_equal(o.rdzv_host, "127.0.0.1");
    assert_int_equal(o.rdzv_port, 29500);
    assert_int_equal(o.serving, RDZV_SERVE_ALWAYS);
    assert_true(o.join_timeout_ms == 5000);
    ACCEPT(&o, "--nnodes=2", "--rdzv-backend=static", "--rdzv-endpoint=node0:1234",
           "--master-addr=x", "a"); /* the endpoint goes first, as in torchrun */
    assert_true(o.is_static);
    assert_string_equal(o.rdzv_host, "node0");
    assert_int_equal(o.rdzv_port, 1234);
    ACCEPT(&o, "--nnodes=1:2", "--master-addr=x", "a");
    assert_int_equal(o.min_nodes, 2);
    assert_string_equal(
        o.note,
        "the static backend's world is fixed: all 2 nodes are waited for; for 1:2 "
        "use --rdzv-backend=c10d and --rdzv-endpoint");
    REFUSE("--rdzv-endpoint needs a port with the static backend: node0:29500",
           "--rdzv-backend=static", "--rdzv-endpoint=node0", "a");
    REFUSE("--master-port: port 0 means any free port, which other nodes cannot know; "
           "name one, as x:29500",
           "--nnodes=2", "--master-addr=x", "--master-port=0", "a");
    REFUSE("--master-port: expects a number from 0 to 65535, not '65536'",
           "--master-port=65536", "a");
}

static void one_node_takes_a_free_port_unless_its_port_is_named(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--rdzv-backend=static", "--master-addr=10.0.0.1", "a");
    assert_true(o.standalone);
    assert_false(o.is_static);
    ACCEPT(&o, "--master-port=0", "a");
    assert_true(o.standalone);
    assert_false(o.is_static);
    ACCEPT(&o, "--master-port=1234", "a");
    assert_true(o.is_static);
    assert_false(o.standalone);
    assert_string_equal(o.rdzv_host, "127.0.0.1");
    assert_int_equal(o.rdzv_port, 1234);
    assert_int_equal(o.serving, RDZV_SERVE_ALWAYS);
    assert_string_equal(o.rdzv_id, "none");
    ACCEPT(&o, "--rdzv-endpoint=localhost", "--node-rank=0", "--master-port=1", "a");
    assert_false(o.is_static); /* an endpoint alone is elastic */
    assert_string_equal(o.note,
                        "--master-addr and --master-port have no effect: they are "
                        "of the static backend, and the endpoint here is "
                        "localhost:29400");
}

static void standalone_overrides_endpoint_and_id_as_torchruns_does(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--standalone", "--rdzv-endpoint=node0:1", "--rdzv-id=j", "--nnodes=1:4",
           "a");
    assert_true(o.standalone);
    assert_string_equal(o.rdzv_host, "");
    assert_string_equal(o.rdzv_id, "");
    assert_int_equal(o.rdzv_port, 0);
    assert_int_equal(o.max_nodes, 1);
    REFUSE("--standalone is for one node, but --nnodes asks for 2; use "
           "--rdzv-endpoint=HOST:PORT instead",
           "--standalone", "--nnodes=2", "a");
}

static void rdzv_conf_takes_torchruns_keys(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--rdzv-conf=join_timeout=7,last_call_timeout=2,store_type=tcp", "a");
    assert_true(o.join_timeout_ms == 7000);
    assert_true(o.last_call_timeout_ms == 2000);
    assert_int_equal(o.serving, RDZV_SERVE_OWN_ADDRESS);
    ACCEPT(&o, "--rdzv-conf=", "a");
    ACCEPT(&o, "--rdzv-conf=is_host=True", "a");
    assert_int_equal(o.serving, RDZV_SERVE_ALWAYS);
    ACCEPT(&o, "--rdzv-conf=is_host=n", "a");
    assert_int_equal(o.serving, RDZV_SERVE_NEVER);
    ACCEPT(&o,
           "--rdzv-conf=timeout=900,close_timeout=30,heartbeat_timeout=5,"
           "keep_alive_interval=5,keep_alive_max_attempt=3,read_timeout=60,"
           "cas_backoff_max_seconds=0.5,use_libuv=0,rank=0",
           "a");
    assert_true(o.join_timeout_ms == 600000); /* `timeout` is another backend's */
    ACCEPT(&o, "--rdzv-conf=join_timeout=7", "--rdzv-conf=last_call_timeout=2", "a");
    assert_true(o.join_timeout_ms == 600000); /* the last one, as argparse has it */
}

static void mistakes_in_rdzv_conf_name_the_key(void **state)
{
    (void)state;
    REFUSE("--rdzv-conf: join_timeout expects seconds from 1 to 1000000, not '0'",
           "--rdzv-conf=join_timeout=0", "a");
    REFUSE("--rdzv-conf: join_timeout expects seconds from 1 to 1000000, not '1.5'",
           "--rdzv-conf=join_timeout=1.5", "a");
    REFUSE(
        "--rdzv-conf: keep_alive_max_attempt expects a number from 1 to 1000000, not "
        "'0'",
        "--rdzv-conf=keep_alive_max_attempt=0", "a");
    REFUSE("--rdzv-conf: cas_backoff_max_seconds expects seconds, 0 or more, not '-1'",
           "--rdzv-conf=cas_backoff_max_seconds=-1", "a");
    REFUSE("--rdzv-conf: is_host expects 1 or 0, not '2'",
           "--rdzv-conf=join_timeout=1,is_host=2", "a");
    REFUSE("--rdzv-conf: store_type=file is not there; nodes meet at a port: leave the "
           "key out and name a host by --rdzv-endpoint=HOST:PORT",
           "--rdzv-conf=store_type=file", "a");
    REFUSE(
        "--rdzv-conf: unknown key 'join_timout', near join_timeout; those with an "
        "effect are join_timeout, last_call_timeout, timeout, is_host and store_type",
        "--rdzv-conf=join_timout=3", "a");
    REFUSE("--rdzv-conf: expects KEY=VALUE,…, not 'join_timeout'",
           "--rdzv-conf=join_timeout", "a");
    REFUSE("--rdzv-conf: ends in a comma: 'join_timeout=3,'",
           "--rdzv-conf=join_timeout=3,", "a");
}

static void mistakes_are_one_line_with_cause_and_remedy(void **state)
{
    (void)state;
    REFUSE(
        "no program given; usage: ctrun [options] program [arguments …]; 'ctrun --help' "
        "says more",
        "--standalone");
    REFUSE(
        "no program given; usage: ctrun [options] program [arguments …]; 'ctrun --help' "
        "says more",
        NULL);
    REFUSE("unknown option --nprocs-per-node=2; did you mean --nproc-per-node?",
           "--nprocs-per-node=2", "a");
    REFUSE("unknown option --zzzzzzzzzzzz; 'ctrun --help' lists them", "--zzzzzzzzzzzz",
           "a");
    REFUSE("--config-name is an option of ctrun-worker: put it behind the program",
           "--config_name=demo", "ctrun-worker");
    REFUSE("--json is how --dry-run prints; give both, or put it behind the program",
           "--json", "ctrun-worker");
    REFUSE("unknown option -q; 'ctrun --help' lists them", "-q", "a");
    REFUSE("--nnodes: expects N or MIN:MAX, numbers from 1 to 16384, not '2:20:30'",
           "--nnodes=2:20:30", "a");
    REFUSE("--nnodes: expects N or MIN:MAX, numbers from 1 to 16384, not '0'",
           "--nnodes=0", "a");
    REFUSE("--nnodes: MIN 3 is above MAX 2", "--nnodes=3:2", "a");
    REFUSE(
        "--nproc-per-node: expects a number from 1 to 16384, auto, cpu or gpu, not 'hpu'",
        "--nproc-per-node=hpu", "a");
    REFUSE(
        "--nproc-per-node: xpu: Intel's GPUs cannot be counted here; give the number "
        "of workers",
        "--nproc-per-node=xpu", "a");
    REFUSE("--max-restarts: expects a number from 0 to 1000000, not '-1'",
           "--max-restarts=-1", "a");
    REFUSE("--max-restarts: expects a number from 0 to 1000000, not '-1'",
           "--max-restarts", "-1", "a");
    REFUSE("--max-restarts needs a value: --max-restarts=N", "--max-restarts",
           "--standalone", "a");
    REFUSE("--max-restarts needs a value: --max-restarts=N", "--max-restarts");
    REFUSE("--standalone takes no value, but got '1'", "--standalone=1", "a");
    REFUSE("--rdzv-id: may not have '/' or control characters: it names a folder",
           "--rdzv-id=a/b", "a");
    REFUSE("--rdzv-endpoint expects HOST[:PORT], a port from 0 to 65535, not "
           "'node0:http'",
           "--rdzv-endpoint=node0:http", "a");
    REFUSE("--rdzv-endpoint expects HOST[:PORT], a port from 0 to 65535, not "
           "'localhost:99999'",
           "--rdzv-endpoint=localhost:99999", "a");
    REFUSE(
        "--rdzv-endpoint: port 0 means any free port, which other nodes cannot know; name "
        "one, as n:29400",
        "--nnodes=2", "--rdzv-endpoint=n:0", "a");
    REFUSE("--module and --no-python exclude each other; leave one out", "-m",
           "--no-python", "a");
    REFUSE("--node-rank 2 is not below the number of nodes, 2", "--nnodes=2",
           "--node-rank=2", "a");
}

static void plug_ins_of_torchrun_are_refused_by_name(void **state)
{
    (void)state;
    REFUSE(
        "--logs-specs is a Python plug-in of torchrun's, for which there is no place "
        "here; use -r, -t and --log-dir",
        "--logs_specs", "x", "a");
    REFUSE("--rdzv-backend: 'etcd-v2' is not there; use c10d: the node that owns "
           "--rdzv-endpoint, or ctrun-rendezvous, does what etcd did",
           "--rdzv-backend=etcd-v2", "a");
    REFUSE(
        "--rdzv-backend: 'mine' is not there, and plug-ins are Python's; use c10d or "
        "static",
        "--rdzv-backend=mine", "a");
}

static void output_goes_where_options_say(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "a");
    assert_null(o.redirects.redirects);
    assert_null(o.redirects.tee);
    assert_null(o.redirects.console);
    assert_null(o.redirects.ranks);
    assert_null(o.redirects.local_ranks);
    assert_false(o.redirects.has_no_files);
    assert_null(o.prefix);
    assert_null(o.filters[0]);
    assert_null(o.filters[1]);
    assert_int_equal(o.log_max_size, 0);
    ACCEPT(&o, "-r3", "-t", "0:1,12:2", "--console=none", "--ranks_filter=0-3",
           "--local-ranks-filter", "0,1", "--log-line-prefix-template=[$rank]",
           "--duplicate-stdout-filters=a", "--duplicate-stderr-filters=b,c",
           "--log-max-size=10M", "--log-dir=/dev/null", "a");
    assert_string_equal(o.redirects.redirects, "3");
    assert_string_equal(o.redirects.tee, "0:1,12:2");
    assert_string_equal(o.redirects.console, "none");
    assert_string_equal(o.redirects.ranks, "0-3");
    assert_string_equal(o.redirects.local_ranks, "0,1");
    assert_true(o.redirects.has_no_files);
    assert_string_equal(o.prefix, "[$rank]");
    assert_string_equal(o.filters[0], "a");
    assert_string_equal(o.filters[1], "b,c");
    assert_int_equal(o.log_max_size, 10 << 20);
    ACCEPT(&o, "--redirect=1", "--local-ranks-filter=", "--duplicate-stdout-filters=",
           "a"); /* torchrun's defaults */
    assert_string_equal(o.redirects.redirects, "1");
    assert_null(o.redirects.local_ranks);
    assert_null(o.filters[0]);
}

static void bad_values_for_the_output_are_refused(void **state)
{
    (void)state;
    REFUSE("--tee: expects 0 (neither), 1 (stdout), 2 (stderr) or 3 (both), or "
           "LOCAL_RANK:MASK,… as 0:3,1:2; not '4'",
           "-t", "4", "a");
    REFUSE("--ranks-filter: expects ranks as 0,2 or 0-3,8; not 'all'",
           "--ranks-filter=all", "a");
    REFUSE("--console: expects all, none, or ranks as 0,2 or 0-3,8; not 'rank0'",
           "--console=rank0", "a");
    REFUSE("--log-max-size: expects bytes as 65536, 64K, 10M or 1G, not '1T'",
           "--log-max-size=1T", "a");
    REFUSE("--log-max-size: expects bytes as 65536, 64K, 10M or 1G, not 'K'",
           "--log-max-size=K", "a");
    REFUSE("--log-max-size: expects at least 4096 bytes, not '1K'", "--log-max-size=1K",
           "a");
}

static void flags_of_torchrun_without_an_effect_are_accepted(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "--monitor-interval=0.1", "--start-method", "spawn", "a");
    assert_string_equal(o.program[0], "a");
    ACCEPT(&o, "--monitor_interval", "5", "--start-method=fork", "a");
    ACCEPT(&o, "--start_method=forkserver", "--event-log-handler=null", "a");
    assert_false(o.logs_events);
    ACCEPT(&o, "--event_log_handler", "console", "a");
    assert_true(o.logs_events);
    ACCEPT(&o, "--run-path", "-m", "--no-python", "a"); /* it goes before both */
    assert_true(o.run_path);
    REFUSE(
        "--event-log-handler: 'mine' is not there, and plug-ins are Python's; use null "
        "or console",
        "--event-log-handler=mine", "a");
    REFUSE("--monitor-interval: expects seconds, a number above 0, not '0'",
           "--monitor-interval=0", "a");
    REFUSE("--monitor-interval: expects seconds, a number above 0, not 'soon'",
           "--monitor-interval=soon", "a");
    REFUSE("--start-method: expects spawn, fork or forkserver, not 'thread'",
           "--start-method=thread", "a");
}

static void store_access_is_auto_unless_asked_otherwise(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "a");
    assert_int_equal(o.store_access, STORE_ACCESS_AUTO);
    ACCEPT(&o, "--store-access=auto", "a");
    assert_int_equal(o.store_access, STORE_ACCESS_AUTO);
    ACCEPT(&o, "--store_access", "local", "a");
    assert_int_equal(o.store_access, STORE_ACCESS_LOCAL);
    ACCEPT(&o, "--store-access=direct", "a");
    assert_int_equal(o.store_access, STORE_ACCESS_DIRECT);
    REFUSE("--store-access: expects auto, local or direct, not 'remote'",
           "--store-access=remote", "a");
    REFUSE("--store-access: expects auto, local or direct, not ''",
           "--store-access=", "a");
}

static void
job_is_stopped_by_torchruns_signals_in_its_time_unless_told_otherwise(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "a");
    assert_string_equal(o.signals.text, "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
    assert_int_equal(o.shutdown_s, 30);
    ACCEPT(&o, "--signals-to-handle=SIGTERM,SIGUSR1,SIGNOPE", "--shutdown_timeout=5",
           "a");
    assert_string_equal(o.signals.text, "SIGTERM,SIGUSR1");
    assert_non_null(strstr(o.signals.trouble, "SIGNOPE"));
    assert_int_equal(o.shutdown_s, 5);
    ACCEPT(&o, "--preempt-signal=usr1", "a");
    assert_string_equal(o.signals.text, "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1");
    ACCEPT(&o, "--preempt-signal=RTMIN+2", "--signals-to-handle=TERM", "a");
    assert_string_equal(o.signals.text, "SIGTERM,SIGRTMIN+2");
    REFUSE("--preempt-signal: expects a signal that can be handled, such as USR1, not "
           "'KILL'",
           "--preempt-signal=KILL", "a");
    REFUSE("--shutdown-timeout: expects whole seconds from 0 to 31536000, not '-1'",
           "--shutdown-timeout=-1", "a");
    REFUSE("--shutdown-timeout: expects whole seconds from 0 to 31536000, not '1.5'",
           "--shutdown-timeout=1.5", "a");
    REFUSE("--shutdown-timeout: expects whole seconds from 0 to 31536000, not "
           "'31536001'",
           "--shutdown-timeout=31536001", "a");
}

static void shutdown_timeout_of_the_environment_holds_without_the_option(void **state)
{
    struct launch_options o;
    struct errmsg msg = {0};

    (void)state;
    ACCEPT(&o, "a");
    assert_int_equal(launch_options_shutdown_env(&o, NULL, &msg), 0);
    assert_int_equal(o.shutdown_s, 30);
    assert_int_equal(launch_options_shutdown_env(&o, "600", &msg), 0);
    assert_int_equal(o.shutdown_s, 600);
    ACCEPT(&o, "--shutdown-timeout=30", "a");
    assert_int_equal(launch_options_shutdown_env(&o, "600", &msg), 0);
    assert_int_equal(o.shutdown_s, 30);
    ACCEPT(&o, "a");
    assert_int_equal(launch_options_shutdown_env(&o, "-1", &msg), ERR_INVALID);
    assert_string_equal(msg.text,
                        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT: expects whole seconds "
                        "from 0 to 31536000, not '-1'");
}

static void help_and_version_end_the_reading(void **state)
{
    struct launch_options o;
    char *text = launch_options_help();

    (void)state;
    ACCEPT(&o, "--standalone", "-h", "--nonsense");
    assert_true(o.help);
    ACCEPT(&o, "--version");
    assert_true(o.version);
    ACCEPT(&o, "--print-completion=zsh", "--nonsense");
    assert_int_equal(o.print, TABLE_ZSH);
    REFUSE("--print-completion: 'tcsh' is not there; use bash or zsh",
           "--print-completion", "tcsh");
    assert_non_null(strstr(text, "--nproc-per-node N|auto|cpu|gpu\n"));
    assert_non_null(strstr(text, "-m, --module"));
    assert_null(strstr(text, "--logs-specs"));
    for (const char *p = text; *p != '\0';) { /* it fits a terminal */
        size_t len = strcspn(p, "\n");

        assert_in_range(len, 0, 110);
        p += len + (p[len] == '\n');
    }
    mem_free(text);
}

static void first_argument_that_is_a_verb_is_the_verb(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "ckpt", "list", "--json", "runs/x/ckpt");
    assert_string_equal(o.verb, "ckpt");
    assert_string_equal(o.program[0], "ckpt");
    assert_string_equal(o.program[2], "--json");
    REFUSE(
        "the verb 'status' is not there yet; a program of that name is started by: ctrun "
        "run status",
        "status");
    ACCEPT(&o, "run", "status", "x");
    assert_null(o.verb);
    assert_string_equal(o.program[0], "status");
    assert_string_equal(o.program[1], "x");
    ACCEPT(&o, "run", "--nproc-per-node=2", "ckpt");
    assert_int_equal(o.nproc, 2);
    assert_string_equal(o.program[0], "ckpt");
    ACCEPT(&o, "--standalone", "status"); /* not the first: a program */
    assert_string_equal(o.program[0], "status");
}

/* Sets `env` for what follows; NULL: nothing. */
static void set_variable(const char *text)
{
    static char copy[256];
    static char *variables[] = {copy, NULL};

    (void)snprintf(copy, sizeof(copy), "%s", text ? text : "");
    env = text ? variables : no_variables;
}

static void refuse_variable(const char *variable, const char *text)
{
    set_variable(variable);
    REFUSE(text, "a");
    set_variable(NULL);
}

static int forget_variables(void **state)
{
    (void)state;
    set_variable(NULL);
    return 0;
}

static void
a_variable_stands_for_an_option_that_is_not_on_the_command_line(void **state)
{
    struct launch_options o;

    (void)state;
    set_variable("PET_NNODES=2:3");
    ACCEPT(&o, "--rdzv-endpoint=n", "a");
    assert_int_equal(o.min_nodes, 2);
    assert_int_equal(o.max_nodes, 3);
    ACCEPT(&o, "--nnodes=4", "--rdzv-endpoint=n", "a");
    assert_int_equal(o.min_nodes, 4);
    set_variable("PET_RDZV_CONF=join_timeout=5"); /* replaced whole, not merged */
    ACCEPT(&o, "--rdzv-conf=last_call_timeout=3", "a");
    assert_true(o.join_timeout_ms == 600000);
    set_variable("PET_MAX_RESTARTS=x"); /* not looked at */
    ACCEPT(&o, "--max-restarts=3", "a");
    ACCEPT(&o, "--help");
    ACCEPT(&o, "ckpt", "list");
    set_variable("PET_UNKNOWN=1");
    ACCEPT(&o, "a");
}

static void a_flags_variable_is_a_number_and_the_flag_itself_wins(void **state)
{
    struct launch_options o;

    (void)state;
    set_variable("PET_NO_PYTHON=1");
    ACCEPT(&o, "a");
    assert_true(o.no_python);
    set_variable("PET_NO_PYTHON= -2");
    ACCEPT(&o, "a");
    assert_true(o.no_python);
    set_variable("PET_NO_PYTHON=0");
    ACCEPT(&o, "a");
    assert_false(o.no_python);
    ACCEPT(&o, "--no-python", "a");
    assert_true(o.no_python);
}

static void a_mistake_in_a_variable_names_it(void **state)
{
    (void)state;
    refuse_variable(
        "PET_NNODES=x",
        "PET_NNODES: expects N or MIN:MAX, numbers from 1 to 16384, not 'x'");
    refuse_variable("PET_MODULE=yes",
                    "PET_MODULE: expects 1 (on) or 0 (off), not 'yes'");
    refuse_variable(
        "PET_TEE=9",
        "PET_TEE: expects 0 (neither), 1 (stdout), 2 (stderr) or 3 (both), or LOCAL_RANK:MASK,… as 0:3,1:2; not '9'");
}

static void a_variable_that_is_empty_counts_as_given(void **state)
{
    struct launch_options o;

    (void)state;
    refuse_variable("PET_MAX_RESTARTS=",
                    "PET_MAX_RESTARTS: expects a number from 0 to 1000000, not ''");
    refuse_variable("PET_STANDALONE=",
                    "PET_STANDALONE: expects 1 (on) or 0 (off), not ''");
    set_variable("PET_LOG_DIR="); /* an empty text is what the option has without it */
    ACCEPT(&o, "a");
    set_variable("PET_RDZV_ID="); /* … and an empty id a random one */
    ACCEPT(&o, "--rdzv-endpoint=localhost", "a");
    assert_string_equal(o.rdzv_id, "");
    REFUSE("--rdzv-id: an empty one means a random one, which other nodes cannot know; "
           "name one",
           "--nnodes=2", "--rdzv-endpoint=n", "a");
}

/* The variables of torchrun.md, and no others. */
static void torchruns_options_and_one_more_have_variables(void **state)
{
    static const char *const names[] = {"NNODES",
                                        "NPROC_PER_NODE",
                                        "RDZV_BACKEND",
                                        "RDZV_ENDPOINT",
                                        "RDZV_ID",
                                        "RDZV_CONF",
                                        "STANDALONE",
                                        "MAX_RESTARTS",
                                        "MONITOR_INTERVAL",
                                        "START_METHOD",
                                        "EVENT_LOG_HANDLER",
                                        "ROLE",
                                        "MODULE",
                                        "NO_PYTHON",
                                        "RUN_PATH",
                                        "LOG_DIR",
                                        "REDIRECTS",
                                        "TEE",
                                        "LOG_LINE_PREFIX_TEMPLATE",
                                        "LOCAL_RANKS_FILTER",
                                        "DUPLICATE_STDOUT_FILTERS",
                                        "DUPLICATE_STDERR_FILTERS",
                                        "NODE_RANK",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "LOCAL_ADDR",
                                        "SIGNALS_TO_HANDLE",
                                        "PREEMPT_SIGNAL", /* ours: for batch files */
                                        "SHUTDOWN_TIMEOUT",
                                        "VIRTUAL_LOCAL_RANK"};
    const struct options *table = &launch_options_table;
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < table->n; i++) {
        char name[64] = "";
        bool is_listed = false;

        if (table->specs[i].no_variable || table->specs[i].elsewhere) {
            continue;
        }
        for (size_t k = 0; table->specs[i].name[k] != '\0'; k++) {
            char c = table->specs[i].name[k];

            name[k] = c == '-' ? '_' : (char)(c - 'a' + 'A');
        }
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
            is_listed = is_listed || strcmp(names[k], name) == 0;
        }
        if (!is_listed) {
            print_error("PET_%s is not torchrun's\n", name);
        }
        assert_true(is_listed);
        n++;
    }
    assert_int_equal(n, sizeof(names) / sizeof(names[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_node_without_options_gets_a_free_port_and_a_random_id),
        cmocka_unit_test(both_spellings_and_both_ways_to_give_a_value_are_alike),
        cmocka_unit_test(
            unique_prefixes_are_accepted_and_ambiguous_ones_name_the_candidates),
        cmocka_unit_test(arguments_behind_the_program_are_its_own),
        cmocka_unit_test(several_nodes_meet_at_the_endpoint),
        cmocka_unit_test(static_world_is_at_master_addr_and_port),
        cmocka_unit_test(one_node_takes_a_free_port_unless_its_port_is_named),
        cmocka_unit_test(standalone_overrides_endpoint_and_id_as_torchruns_does),
        cmocka_unit_test(rdzv_conf_takes_torchruns_keys),
        cmocka_unit_test(mistakes_in_rdzv_conf_name_the_key),
        cmocka_unit_test(mistakes_are_one_line_with_cause_and_remedy),
        cmocka_unit_test(plug_ins_of_torchrun_are_refused_by_name),
        cmocka_unit_test(output_goes_where_options_say),
        cmocka_unit_test(bad_values_for_the_output_are_refused),
        cmocka_unit_test(flags_of_torchrun_without_an_effect_are_accepted),
        cmocka_unit_test(
            job_is_stopped_by_torchruns_signals_in_its_time_unless_told_otherwise),
        cmocka_unit_test(shutdown_timeout_of_the_environment_holds_without_the_option),
        cmocka_unit_test(store_access_is_auto_unless_asked_otherwise),
        cmocka_unit_test(help_and_version_end_the_reading),
        cmocka_unit_test(first_argument_that_is_a_verb_is_the_verb),
        cmocka_unit_test_teardown(
            a_variable_stands_for_an_option_that_is_not_on_the_command_line,
            forget_variables),
        cmocka_unit_test_teardown(a_flags_variable_is_a_number_and_the_flag_itself_wins,
                                  forget_variables),
        cmocka_unit_test_teardown(a_mistake_in_a_variable_names_it, forget_variables),
        cmocka_unit_test_teardown(a_variable_that_is_empty_counts_as_given,
                                  forget_variables),
        cmocka_unit_test(torchruns_options_and_one_more_have_variables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
