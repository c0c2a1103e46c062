"""What PyTorch's public tests ask of torchrun, asked of ctrun.

A name of theirs (of test/distributed/launcher/test_run.py and run_test.py, and of
test/distributed/elastic/**), and where it is asked here. Names without a file are of this one; store and
process groups: tests/torch/store_cases.py, tests/torch/process_group.py.

    test_run.py
    test_launch_user_script_python            test_script_runs_once_for_each_rank
    test_launch_user_script_bash              test_script_runs_once_for_each_rank; with --module:
                                              unit/launcher/test_options
    test_launch_user_script_default_nproc     test_one_worker_is_the_default
    test_nproc_launch_*, test_nproc_gpu_*     unit/launcher/test_node, test_options
    test_launch_elastic                       test_elastic_job_starts_with_the_nodes_there_are
    test_launch_elastic_worker_raise_exc…     test_exception_ends_an_elastic_job
    test_launch_standalone                    test_script_runs_once_for_each_rank
    test_launch_elastic_multiple_agents       test_ranks_of_several_nodes_sum_up
    test_min_max_nodes_parse                  test_nodes_that_are_no_range_are_refused
    test_launch_shutdown                      test_launch.py: nothing of a job outlives ctrun
    test_is_torchelastic_launched             test_run_id_says_that_a_launcher_is_there
    test_init_method_tcp/env_with_…           process_group.py
    run_test.py
    test_single_node_defaults_to_free_port    test_two_jobs_of_one_host_do_not_meet
    multi-node cases keep 29500               different: our port is 29400, as of c10d

    local_elastic_agent_test.py
    run_check_env_function                    test_launch.py: test_environment_is_torchruns
    …_nccl_async_error_handling_env(_default) unit/launcher/test_env
    simple_dist_sum, run_distributed_sum_*    test_ranks_of_several_nodes_sum_up
    correct_rank_assignment_*                 test_ranks_of_several_nodes_sum_up
    run_bipolar_function                      test_half_that_fails_uses_up_the_restarts
    run_happy_function                        test_script_runs_once_for_each_rank
    double_agent_fault_tolerance              test_launch.py: test_killed_agent_comes_back_by_…
    double_agent_elastic                      test_launch.py: test_node_that_joins_…, …_leaves_…
    workers_drift_success, …_fail             test_node_that_is_ready_waits_for_the_others, and
                                              test_failure_elsewhere_ends_a_node_that_is_ready
    rank_restart_after_failure                test_launch.py: test_restarted_worker_knows_the_count
    healthcheck setup                         none: a hook of torchrun's that does nothing

    multiprocessing/api_test.py
    binary_exit_code, binary_raises           test_launch.py: test_exit_code_is_the_first_causes
    binary_incorrect_entrypoint               test_launch_user.py: test_program_that_cannot_run_…
    no_zombie_process_* (TERM, INT)           test_launch.py: test_grandchildren_go_too
    functions instead of programs             none: ctrun starts programs only

    dynamic_rendezvous_test.py                unit/rendezvous, sim/test_cluster: another machine
                                              (no pickled state, no polling), with its own cases
    utils_test.py (endpoints, rdzv_conf)      unit/launcher/test_options, test_node
    errors/api_test.py, error_handler_test.py unit/launcher/test_report, test_error_file; torch:
                                              test_exception_of_a_recorded_main_is_in_the_report

Their options, signals and shutdown-timeout, redirects, tail and log filters, roles, NUMA and timer
cases stand with the tests of those subjects.

Different on purpose, and asked here as it is with us: ctrun ends with the first cause's own code where
torchrun has 1, and with 2 where an option's value makes it fail with an exception (1)."""

import json
import os
import re
import sys

import pytest

HERE = os.path.dirname(__file__)


@pytest.fixture
def ctrun(start, bin_dir):
    def run(*args, **kwargs):
        return start(bin_dir / "ctrun", *args, **kwargs)

    return run


@pytest.fixture
def job(ctrun, free_port):
    """job(nnodes, *args) starts one more agent of the same job."""

    def run(nnodes, *args, **kwargs):
        return ctrun(f"--nnodes={nnodes}", "--rdzv-backend=c10d", "--rdzv-id=job",
                     f"--rdzv-endpoint=127.0.0.1:{free_port}", *args, **kwargs)

    return run


# --- programs ---

TOUCH_PY = "import os, sys\nopen(os.path.join(sys.argv[1], os.environ['RANK']), 'x').close()\n"
TOUCH_SH = '#!/bin/sh\nset -C; : >"$1/$RANK"\n'


@pytest.mark.parametrize("kind, nodes", [
    ("script", ["--nnodes=1"]), ("module", ["--standalone"]), ("shell", ["--nnodes=1:1"]),
    ("no-python", ["--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]),
])
def test_script_runs_once_for_each_rank(ctrun, tmp_path, nodes, kind):
    done = tmp_path / "done"
    done.mkdir()
    (tmp_path / "touch.py").write_text(TOUCH_PY)
    (tmp_path / "touch.sh").write_text(TOUCH_SH)
    (tmp_path / "touch.sh").chmod(0o755)
    program = {"script": ["touch.py"], "module": ["-m", "touch"], "shell": ["./touch.sh"],
               "no-python": ["--no-python", "./touch.sh"]}[kind]
    run = ctrun(*nodes, "--nproc-per-node=3", "--monitor-interval=1", "--start-method=spawn",
                *program, done, cwd=tmp_path)
    assert run.wait() == 0, run.err()
    assert sorted(os.listdir(done)) == ["0", "1", "2"]


def test_one_worker_is_the_default(ctrun, tmp_path):
    (tmp_path / "touch.sh").write_text(TOUCH_SH)
    run = ctrun("--nnodes=1", "--no-python", "/bin/sh", tmp_path / "touch.sh", tmp_path)
    assert run.wait() == 0, run.err()
    assert (tmp_path / "0").exists() and not (tmp_path / "1").exists()


def test_run_id_says_that_a_launcher_is_there(ctrun, bin_dir):
    run = ctrun("--rdzv-id=the one", bin_dir / "fake-worker", "env")
    assert run.wait() == 0, run.err()
    assert json.loads(run.out())["TORCHELASTIC_RUN_ID"] == "the one"


@pytest.mark.parametrize("nnodes", ["2:20:30", "2:1", "0", "0:1", "one", "", ":", "1:"])
def test_nodes_that_are_no_range_are_refused(ctrun, nnodes):
    run = ctrun(f"--nnodes={nnodes}", "/bin/true")
    assert run.wait() == 2
    assert len(run.err().splitlines()) == 1 and "--nnodes" in run.err()


def test_two_jobs_of_one_host_do_not_meet(ctrun, tmp_path):
    """Neither names an endpoint: each has a port, an id and a world of its own."""
    script = tmp_path / "meet.sh"
    script.write_text('echo "$WORLD_SIZE $MASTER_PORT $TORCHELASTIC_RUN_ID"; : >"$1"\n'
                      'while ! [ -e "$2" ]; do sleep 0.01; done\n')
    files = [tmp_path / "a", tmp_path / "b"]
    runs = [ctrun("--no-python", "/bin/sh", script, mine, other)
            for mine, other in (files, files[::-1])]
    assert [r.wait() for r in runs] == [0, 0], [r.err() for r in runs]
    (world_a, port_a, id_a), (world_b, port_b, id_b) = (r.out().split() for r in runs)
    assert world_a == world_b == "1"
    assert port_a != port_b and id_a != id_b


# --- several nodes ---

SUM = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import store_client as sc
names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
         "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE")
env = {name: int(os.environ[name]) for name in names}
with sc.Client(int(os.environ["MASTER_PORT"]), os.environ["MASTER_ADDR"]) as store:
    store.send(sc.request(sc.ADD, "sum", env["RANK"]))
    store.read_i64()
    store.send(sc.request(sc.BARRIER, "all", env["WORLD_SIZE"]))
    assert store.read(1) == b"\\0"
    env["sum"] = int(store.get("sum"))
print(json.dumps(env))
"""


@pytest.mark.parametrize("nprocs", [[4, 4], [1, 2, 3]])
def test_ranks_of_several_nodes_sum_up(job, nprocs):
    agents = [job(len(nprocs), f"--nproc-per-node={n}", f"--node-rank={i}", "--no-python",
                  sys.executable, "-c", SUM, HERE) for i, n in enumerate(nprocs)]
    assert [a.wait() for a in agents] == [0] * len(nprocs), [a.err() for a in agents]
    world = sum(nprocs)
    expected = [
        {"RANK": sum(nprocs[:group]) + local, "LOCAL_RANK": local, "GROUP_RANK": group,
         "ROLE_RANK": sum(nprocs[:group]) + local, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": n,
         "GROUP_WORLD_SIZE": len(nprocs), "ROLE_WORLD_SIZE": world,
         "sum": world * (world - 1) // 2}
        for group, n in enumerate(nprocs) for local in range(n)
    ]
    told = [json.loads(line) for a in agents for line in a.out().splitlines()]
    assert sorted(told, key=lambda e: e["RANK"]) == expected


def test_elastic_job_starts_with_the_nodes_there_are(job, bin_dir):
    run = job("1:2", "--nproc-per-node=2", "--rdzv-conf=last_call_timeout=1",
              bin_dir / "fake-worker", "print=%r")
    assert run.wait() == 0, run.err()
    assert sorted(run.out().split()) == ["0", "1"]


def test_exception_ends_an_elastic_job(job, tmp_path):
    (tmp_path / "raises.py").write_text("raise RuntimeError('a worker that raises')\n")
    run = job("1:2", "--nproc-per-node=2", "--rdzv-conf=last_call_timeout=1",
              tmp_path / "raises.py")
    assert run.wait() == 1
    assert "RuntimeError: a worker that raises" in run.err()[run.err().index("Root Cause"):]


def test_half_that_fails_uses_up_the_restarts(ctrun, bin_dir, tmp_path):
    fails = [w for rank in (1, 3) for w in ("--on", f"rank={rank}", f"wait={tmp_path}/%g",
                                            "--on", f"rank={rank}", "exit=7")]
    run = ctrun("--nproc-per-node=4", "--max-restarts=2", bin_dir / "fake-worker",
                "--on", "rank=0", "print=start %g", "--on", "rank=0", f"touch={tmp_path}/%g",
                *fails, "hang")
    assert run.wait() == 7
    assert run.out().splitlines() == ["start 1", "start 2", "start 3"]
    assert "--max-restarts=2 is used up" in run.err()


# --- nodes that end at different times ---


@pytest.fixture
def drift(job, bin_dir, tmp_path, wait_for):
    """Node 0's worker has ended, node 1's has not; `go` says how it does."""
    go = tmp_path / "go"

    def begin(end):
        agents = [job(2, f"--node-rank={i}", bin_dir / "fake-worker", f"touch={tmp_path}/up%r",
                      "--on", "rank=0", f"pid={tmp_path}/first", "--on", "rank=0", "exit=0",
                      f"wait={go}", end) for i in range(2)]
        first = tmp_path / "first"
        wait_for(lambda: (tmp_path / "up1").exists() and first.exists() and first.read_text())
        wait_for(lambda: not os.path.exists(f"/proc/{first.read_text().strip()}"))
        assert agents[0].popen.poll() is None  # it waits for the others
        go.touch()
        return agents

    return begin


def test_node_that_is_ready_waits_for_the_others(drift):
    agents = drift("exit=0")
    assert [a.wait() for a in agents] == [0, 0], [a.err() for a in agents]


def test_failure_elsewhere_ends_a_node_that_is_ready(drift):
    """torchrun's first node would say that all went well."""
    agents = drift("exit=5")
    assert [a.wait() for a in agents] == [5, 5], [a.err() for a in agents]
    for agent in agents:
        assert re.search(r"rank\s*: 1 \(local_rank: 0\)", agent.err())
