/* The command line's options about the rendezvous, and what they mean together. */

#include "launcher/options/options_core.h"
#include "tests/lib/cmocka.h"
#include "tests/lib/options_rig.h"

#include <string.h>

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
    assert_int_equal(o.serving, RDZV_SERVE_NEVER); /* as torchrun, which says nothing */
    assert_string_equal(
        o.note,
        "--rdzv-conf=is_host=1 has no effect: with the static backend node rank 0 "
        "hosts the endpoint, and this is node rank 1; for another host, or a "
        "ctrun-rendezvous, use --rdzv-backend=c10d");
    assert_true(o.join_timeout_ms == 5000);
    ACCEPT(&o, "--nnodes=2", "--node_rank=0", "--rdzv-conf=is_host=1", "a");
    assert_int_equal(o.serving, RDZV_SERVE_ALWAYS);
    assert_string_equal(o.note, "");
    ACCEPT(&o, "--nnodes=2", "--node_rank=0", "--rdzv-conf=is_host=0", "a");
    assert_int_equal(o.serving, RDZV_SERVE_ALWAYS);
    assert_non_null(strstr(o.note, "is_host=0 has no effect"));
    ACCEPT(&o, "--nnodes=2", "--master-addr=x", "--rdzv-conf=is_host=0", "a");
    assert_int_equal(o.serving, RDZV_SERVE_NEVER); /* its rank is not said */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_nodes_meet_at_the_endpoint),
        cmocka_unit_test(static_world_is_at_master_addr_and_port),
        cmocka_unit_test(one_node_takes_a_free_port_unless_its_port_is_named),
        cmocka_unit_test(standalone_overrides_endpoint_and_id_as_torchruns_does),
        cmocka_unit_test(rdzv_conf_takes_torchruns_keys),
        cmocka_unit_test(mistakes_in_rdzv_conf_name_the_key),
        cmocka_unit_test(store_access_is_auto_unless_asked_otherwise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
