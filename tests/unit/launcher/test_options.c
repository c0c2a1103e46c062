/* ctrun's command line, case by case; test_options_rdzv.c, test_options_env.c and
 * test_options_place.c have the rest. */

#include "launcher/options/options_core.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/options_rig.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

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
        "--rdzv could be any of --rdzv-id, --rdzv-backend, --rdzv-endpoint, --rdzv-conf, "
        "--rdzv-secret-file; write more of it",
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
    REFUSE("--http is an option of ctrun-rendezvous, which the server inside ctrun has "
           "not: run ctrun-rendezvous, and name it by --rdzv-endpoint",
           "--http=127.0.0.1:29401", "a");
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
    REFUSE("--rdzv-id: must be UTF-8, without what cannot be seen or turns the text's "
           "direction: others see it, and ask for the job by it",
           "--rdzv-id=\xff\xfe", "a");
    REFUSE("--rdzv-id: must be UTF-8, without what cannot be seen or turns the text's "
           "direction: others see it, and ask for the job by it",
           "--rdzv-id=\u202eniart", "a");
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

static void a_hang_restarts_where_restarts_are_allowed(void **state)
{
    struct launch_options o;

    (void)state;
    ACCEPT(&o, "a");
    assert_int_equal(o.on_hang, ON_HANG_REPORT);
    ACCEPT(&o, "--max-restarts=1", "a");
    assert_int_equal(o.on_hang, ON_HANG_RESTART);
    ACCEPT(&o, "--on-hang=restart", "a");
    assert_int_equal(o.on_hang, ON_HANG_RESTART);
    ACCEPT(&o, "--on-hang=report", "--max-restarts=1", "a");
    assert_int_equal(o.on_hang, ON_HANG_REPORT);
    REFUSE("--on-hang: expects restart or report, not 'kill'", "--on-hang=kill", "a");
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
        "the verb 'doctor' is not there yet; a program of that name is started by: ctrun "
        "run doctor",
        "doctor");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_node_without_options_gets_a_free_port_and_a_random_id),
        cmocka_unit_test(both_spellings_and_both_ways_to_give_a_value_are_alike),
        cmocka_unit_test(
            unique_prefixes_are_accepted_and_ambiguous_ones_name_the_candidates),
        cmocka_unit_test(arguments_behind_the_program_are_its_own),
        cmocka_unit_test(mistakes_are_one_line_with_cause_and_remedy),
        cmocka_unit_test(plug_ins_of_torchrun_are_refused_by_name),
        cmocka_unit_test(output_goes_where_options_say),
        cmocka_unit_test(bad_values_for_the_output_are_refused),
        cmocka_unit_test(flags_of_torchrun_without_an_effect_are_accepted),
        cmocka_unit_test(
            job_is_stopped_by_torchruns_signals_in_its_time_unless_told_otherwise),
        cmocka_unit_test(a_hang_restarts_where_restarts_are_allowed),
        cmocka_unit_test(shutdown_timeout_of_the_environment_holds_without_the_option),
        cmocka_unit_test(help_and_version_end_the_reading),
        cmocka_unit_test(first_argument_that_is_a_verb_is_the_verb),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
