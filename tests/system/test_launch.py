"""ctrun with the fake worker: environment, ends, signals, restarts, several nodes."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys

import pytest
from processes import alive, is_pending, pids_in


@pytest.fixture
def node(launch, free_port):
    """node(*actions, nodes="2", options=[…]) starts one more agent of the same job."""

    def run(*actions, nodes="2", options=(), nproc=1):
        return launch(
            *actions,
            options=[
                f"--nnodes={nodes}", f"--nproc-per-node={nproc}", "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{free_port}", *options,
            ],
        )

    return run


# --- one node ---


def test_limit_of_a_files_size_that_is_too_low_is_named(start, bin_dir):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    done = subprocess.run([bin_dir / "ctrun", "--no-python", "true"], preexec_fn=limit, text=True,
                          capture_output=True)
    assert done.returncode == 127
    assert "larger than a file may be here: raise the limit (ulimit -f" in done.stderr


def test_environment_is_torchruns(launch):
    ctrun = launch("env", options=["--standalone", "--nproc_per_node", "2", "--max-restarts=3"])
    assert ctrun.wait() == 0
    envs = sorted((json.loads(line) for line in ctrun.out().splitlines()),
                  key=lambda e: e["RANK"])
    assert len(envs) == 2
    for rank, env in enumerate(envs):
        expected = {
            "LOCAL_RANK": str(rank), "RANK": str(rank), "GROUP_RANK": "0",
            "ROLE_RANK": str(rank), "ROLE_NAME": "default", "LOCAL_WORLD_SIZE": "2",
            "WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": "1",
            "CTRUN_GENERATION": "1",
        }
        assert {k: env.get(k) for k in expected} == expected
        assert re.fullmatch(r"[0-9]+", env["MASTER_PORT"])
        assert env["TORCHELASTIC_ERROR_FILE"].endswith(".json")
    assert envs[0]["TORCHELASTIC_RUN_ID"] == envs[1]["TORCHELASTIC_RUN_ID"]
    assert re.fullmatch(r"[0-9a-f-]{36}", envs[0]["TORCHELASTIC_RUN_ID"])


def test_worker_gets_its_own_descriptors_only(launch):
    ctrun = launch("fds", options=["--standalone"])
    assert ctrun.wait() == 0
    assert ctrun.out().strip() == "fds: 0 1 2 3 4"


@pytest.mark.parametrize("action, code", [("exit=0", 0), ("exit=7", 7), ("exit=125", 125),
                                          ("exit=255", 255), ("signal=6", 134), ("signal=9", 137)])
def test_exit_code_is_the_first_causes(launch, action, code):
    ctrun = launch("--on", "rank=1", action, "--on", "rank=0", "hang" if code else "exit=0")
    assert ctrun.wait() == code


def test_exit_2_of_a_foreign_program_is_a_failure_like_any_other(launch):
    ctrun = launch("--on", "restart=0", "exit=2", options=["--standalone", "--max-restarts=1"])
    assert ctrun.wait() == 0
    assert "generation 1 is over; restarting (1 of 1)" in ctrun.err()


def test_report_names_the_first_cause_and_its_last_lines(launch):
    ctrun = launch("--on", "rank=1", "err=out of cheese", "--on", "rank=1", "exit=3", "hang")
    assert ctrun.wait() == 3
    report = ctrun.err()
    assert "Root Cause" in report
    root = report[report.index("Root Cause"):]
    assert re.search(r"rank\s*: 1 \(local_rank: 1\)", root)
    assert re.search(r"exitcode\s*: 3 ", root)
    assert "out of cheese" in root
    assert "stopped because of rank 1" in report
    words = r"rank 1 failed \(exitcode: 3\) local_rank: 1 \(pid: \d+\) of binary: \S+/fake-worker\n"
    assert re.search(words, report[:report.index("====")])  # as torchrun says it
    assert report.count("failed (exitcode: ") == 1


def test_report_has_the_workers_exception_and_names_its_file(launch, tmp_path):
    ctrun = launch("--on", "rank=0", "error=ValueError: no luck", "--on", "rank=0", "exit=1", "hang",
                   options=["--standalone", "--nproc-per-node=2", f"--log-dir={tmp_path}/logs"])
    assert ctrun.wait() == 1
    assert "ValueError: no luck" in ctrun.err()
    kept = re.search(r"error_file: (.*/attempt_1/0/error.json)\n", ctrun.err()).group(1)
    with open(kept) as f:
        assert json.load(f)["message"]["message"] == "ValueError: no luck"


def test_restarts_are_counted_and_used_up(launch):
    ctrun = launch("print=r%r g%g", "--on", "rank=1", "exit=5", "hang",
                   options=["--standalone", "--nproc-per-node=2", "--max-restarts=2"])
    assert ctrun.wait() == 5
    assert {line for line in ctrun.out().splitlines() if line.startswith("r1")} == {
        "r1 g1", "r1 g2", "r1 g3"}
    assert "restarting (2 of 2)" in ctrun.err()
    assert "--max-restarts=2 is used up" in ctrun.err()


def test_restarted_worker_knows_the_count(launch):
    ctrun = launch("--on", "restart=1", "print=again", "--on", "restart=1", "exit=0",
                   "--on", "rank=0", "exit=4", "hang",
                   options=["--standalone", "--nproc-per-node=2", "--max-restarts=1"])
    assert ctrun.wait() == 0
    assert ctrun.out().splitlines() == ["again", "again"]


def test_crash_loop_without_progress_stops_with_93(launch):
    ctrun = launch("progress=7", "exit=1", options=["--standalone", "--max-restarts=10"])
    assert ctrun.wait() == 93
    assert "three times" in ctrun.err()


def test_refusal_ends_the_job_once_without_a_restart(launch):
    ctrun = launch("refuse=2:no such key: traim", "hang",
                   options=["--standalone", "--nproc-per-node=2", "--max-restarts=5"])
    assert ctrun.wait() == 2
    assert ctrun.err().count("no such key: traim") == 1
    assert "restarting" not in ctrun.err()


@pytest.mark.parametrize("program", [["train.py"], ["-m", "package.train"]])
def test_python_programs_run_without_a_named_interpreter(start, bin_dir, tmp_path, program):
    (tmp_path / "package").mkdir()
    for path in ("train.py", "package/train.py"):
        (tmp_path / path).write_text("import os, sys\nprint(os.environ['RANK'], sys.argv[1:])\n")
    env = {k: v for k, v in os.environ.items() if k != "PYTHON_EXEC"}
    ctrun = start(bin_dir / "ctrun", "--standalone", *program, "x", env=env, cwd=tmp_path)
    assert ctrun.wait() == 0, ctrun.err()
    assert ctrun.out() == "0 ['x']\n"


def test_stderr_that_nobody_reads_does_not_hold_the_job(start, bin_dir):
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write_end, b"x" * 4096)
    os.set_blocking(write_end, True)
    ctrun = start(bin_dir / "ctrun", "--standalone", "--max-restarts=1", bin_dir / "fake-worker",
                  "--on", "restart=0", "exit=3", "exit=5",
                  preexec_fn=lambda: os.dup2(write_end, 2))
    assert ctrun.wait() == 5  # though neither the restart nor the report can be told
    os.close(write_end)
    os.close(read_end)


def test_log_dir_holds_each_rank_and_generation(launch, tmp_path):
    logs = tmp_path / "logs"
    ctrun = launch("print=hello %r %g", "--on", "restart=0", "exit=1",
                   options=["--standalone", "--max-restarts=1", f"--log-dir={logs}"])
    assert ctrun.wait() == 0
    files = sorted(logs.glob("*/attempt_*/0/stdout.log"))
    assert [f.read_text() for f in files] == ["hello 0 1\n", "hello 0 2\n"]


# --- signals ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_first_signal_reaches_the_workers(launch, wait_for, tmp_path, number):
    ready = tmp_path / "ready-%r"
    ctrun = launch(f"on={int(number)}:0", f"touch={ready}", "hang")
    wait_for(lambda: (tmp_path / "ready-0").exists() and (tmp_path / "ready-1").exists())
    ctrun.signal(number)
    name = signal.Signals(number).name
    wait_for(lambda: f"{name}: passed it on to the workers" in ctrun.err())
    assert ctrun.wait() == 128 + number


def test_engines_are_asked_to_leave(launch, wait_for, tmp_path):
    ready = tmp_path / "ready-%r"
    ctrun = launch(f"hello={tmp_path / 'engine'}", f"touch={ready}", "obey")
    wait_for(lambda: (tmp_path / "ready-0").exists() and (tmp_path / "ready-1").exists())
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM
    assert "SIGTERM: asked the workers to finish their step" in ctrun.err()
    assert ctrun.err().count("told to leave") == 1  # by rank 0; KILL would come in silence


def test_signal_is_answered_while_the_workers_take_their_time(launch, wait_for, tmp_path):
    ready = tmp_path / "ready-%r"
    go = tmp_path / "go"
    ctrun = launch(f"hello={tmp_path / 'engine'}", f"touch={ready}", f"wait={go}", "obey")
    wait_for(lambda: (tmp_path / "ready-0").exists() and (tmp_path / "ready-1").exists())
    ctrun.signal(signal.SIGINT)
    wait_for(lambda: "SIGINT: asked the workers" in ctrun.err())
    assert "once more to kill them now" in ctrun.err()
    ctrun.signal(signal.SIGHUP)  # as terminals send it; it means nothing new
    go.touch()
    assert ctrun.wait() == 128 + signal.SIGINT
    assert "SIGHUP" not in ctrun.err()


def test_second_ctrl_c_kills(launch, wait_for, tmp_path):
    pids = tmp_path / "pids"
    ready = tmp_path / "ready-%r"
    ctrun = launch("ignore=2", "ignore=15", f"pid={pids}", f"touch={ready}", "hang",
                   env={"CTRUN_LOG": "debug"})
    wait_for(lambda: (tmp_path / "ready-0").exists() and (tmp_path / "ready-1").exists())
    ctrun.signal(signal.SIGINT)
    wait_for(lambda: not is_pending(ctrun.pid, signal.SIGINT))  # else the two may become one
    ctrun.signal(signal.SIGINT)
    wait_for(lambda: "SIGINT once more: killed the workers" in ctrun.err())
    assert ctrun.wait() == 128 + signal.SIGINT
    assert not any(alive(pid) for pid in pids_in(pids))
    for pid in pids_in(pids):  # as torchrun says it
        assert f"Sending process {pid} closing signal SIGINT" in ctrun.err()
        assert f"Unable to shutdown process {pid} via 2, forcefully exiting via 9" in ctrun.err()


def test_signal_before_the_round_ends_at_once(node, wait_for):
    ctrun = node("hang")
    wait_for(lambda: "waiting for" in ctrun.err())
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM


def test_nohup_survives_a_hangup(launch, wait_for, tmp_path):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    ready = tmp_path / "ready"
    go = tmp_path / "go"
    ctrun = start_with(launch, ignore, f"touch={ready}", f"wait={go}")
    wait_for(ready.exists)
    ctrun.signal(signal.SIGHUP)
    go.touch()
    assert ctrun.wait() == 0


def start_with(launch, preexec, *actions):
    old = subprocess.Popen

    def popen(*args, **kwargs):
        return old(*args, **{**kwargs, "preexec_fn": preexec})

    subprocess.Popen = popen
    try:
        return launch(*actions, options=["--standalone"])
    finally:
        subprocess.Popen = old


# --- nothing is left ---


@pytest.mark.parametrize("kind", ["plain", "group", "setsid", "double"])
@pytest.mark.parametrize("how", ["failure", "kill -9"])
def test_grandchildren_go_too(launch, wait_for, tmp_path, kind, how):
    pids = tmp_path / "pids"
    go = tmp_path / "go"
    ready = tmp_path / "ready-%r"
    ctrun = launch(f"child={kind}", f"pid={pids}", f"touch={ready}", f"wait={go}",
                   "--on", "rank=1", "exit=1", "hang")
    wait_for(lambda: (tmp_path / "ready-0").exists() and (tmp_path / "ready-1").exists())
    found = pids_in(pids)
    assert len(found) >= 4 and all(alive(pid) for pid in found if pid)
    if how == "failure":
        go.touch()
        assert ctrun.wait() == 1
    else:
        ctrun.signal(signal.SIGKILL)
        ctrun.wait()
    wait_for(lambda: not any(alive(pid) for pid in found))
    wait_for(lambda: not list((tmp_path / "tmp").iterdir()))


def test_killed_keeper_ends_the_node(launch, wait_for, tmp_path):
    pids = tmp_path / "pids"
    ready = tmp_path / "ready-%r"
    ctrun = launch("child=setsid", f"pid={pids}", f"touch={ready}", "hang")
    wait_for(lambda: (tmp_path / "ready-0").exists() and (tmp_path / "ready-1").exists())
    found = pids_in(pids)
    children = subprocess.check_output(["pgrep", "-P", str(ctrun.pid)], text=True).split()
    assert len(children) == 1
    os.kill(int(children[0]), signal.SIGKILL)
    assert ctrun.wait() == 1
    assert "keeper" in ctrun.err()
    wait_for(lambda: not any(alive(pid) for pid in found))


def test_keeper_killed_while_a_round_starts_ends_the_node(node, wait_for):
    first = node("print=up", nodes="3", nproc=2)
    wait_for(lambda: "waiting for" in first.err())
    victim = node("print=up", nodes="3", nproc=2)
    wait_for(lambda: "waiting for" in victim.err())
    keeper, = subprocess.check_output(["pgrep", "-P", str(victim.pid)], text=True).split()
    victim.signal(signal.SIGSTOP)
    third = node("print=up", nodes="3", nproc=2)
    wait_for(lambda: "up" in first.out())  # the victim, too, has been told of the round
    os.kill(int(keeper), signal.SIGKILL)
    victim.signal(signal.SIGCONT)
    assert victim.wait() == 1
    assert "keeper" in victim.err()
    for other in (third, first):
        other.signal(signal.SIGTERM)
        assert other.wait() == 128 + signal.SIGTERM


# --- several nodes ---


def test_two_agents_with_one_endpoint_make_one_world(node):
    agents = [node("print=%r of it", nproc=2) for _ in range(2)]
    assert [a.wait() for a in agents] == [0, 0]
    lines = [line for a in agents for line in a.out().splitlines()]
    assert sorted(lines) == [f"{r} of it" for r in range(4)]


def test_workers_of_a_foreign_program_meet_at_group_rank_0(node):
    agents = [node("env") for _ in range(2)]
    assert [a.wait() for a in agents] == [0, 0]
    envs = [json.loads(a.out()) for a in agents]
    assert len({(e["MASTER_ADDR"], e["MASTER_PORT"]) for e in envs}) == 1
    assert sorted(e["RANK"] for e in envs) == ["0", "1"]
    assert {e["WORLD_SIZE"] for e in envs} == {"2"}


def test_node_rank_orders_the_ranks(node):
    agents = [node("env", options=[f"--node-rank={1 - i}"]) for i in range(2)]
    assert [a.wait() for a in agents] == [0, 0]
    assert [json.loads(a.out())["GROUP_RANK"] for a in agents] == ["1", "0"]


def test_failure_on_one_node_restarts_both_and_both_report_it(node):
    args = ("--on", "rank=1", "err=my fault", "--on", "rank=1", "exit=9", "hang")
    agents = [node(*args, options=["--max-restarts=1"]) for _ in range(2)]
    assert [a.wait() for a in agents] == [9, 9]
    for a in agents:
        assert "restarting (1 of 1)" in a.err()
        assert re.search(r"Root Cause[^~]*rank\s*: 1 ", a.err())
        assert "my fault" in a.err()[a.err().index("Root Cause"):]
    reports = {a.err()[a.err().index("====="):] for a in agents}
    assert len(reports) == 1  # the last word of every node, and the same
    assert reports.pop().endswith("; exit code 9\n" + 60 * "=" + "\n")


def test_node_that_joins_restarts_the_others_uncounted(node, wait_for):
    args = ("print=world of %g", "--on", "gen=1", "hang", "exit=0")
    first = node(*args, nodes="1:2")
    wait_for(lambda: "world of 1" in first.out())
    second = node(*args, nodes="1:2")
    assert [first.wait(), second.wait()] == [0, 0]
    assert "restarting (" not in first.err()


def test_node_that_leaves_lets_the_rest_go_on(node, wait_for, tmp_path):
    go = tmp_path / "go"
    args = ("print=gen %g", "--on", "gen=1", "hang", f"wait={go}")
    agents = [node(*args, nodes="1:2") for _ in range(2)]
    wait_for(lambda: all("gen 1" in a.out() for a in agents))
    agents[1].signal(signal.SIGTERM)
    assert agents[1].wait() == 128 + signal.SIGTERM
    if "gen 2" not in agents[0].out():
        wait_for(lambda: "gen 2" in agents[0].out())
    go.touch()
    assert agents[0].wait() == 0


@pytest.mark.parametrize("victim", ["owner", "other"])
def test_killed_agent_comes_back_by_the_same_command(node, wait_for, tmp_path, victim):
    pids = tmp_path / "pids"
    go = tmp_path / "go"
    args = (f"pid={pids}", "print=gen %g", f"wait={go}")
    owner = node(*args)
    wait_for(lambda: "waiting for" in owner.err())
    agents = [owner, node(*args)]
    wait_for(lambda: all("gen 1" in a.out() for a in agents) and len(pids_in(pids)) == 2)
    old = pids_in(pids)
    dead = 0 if victim == "owner" else 1
    agents[dead].signal(signal.SIGKILL)
    agents[dead].wait()
    why = "generation 1 ends here: " if victim == "owner" else r"\(group rank [01]\) was lost"
    wait_for(lambda: re.search(why, agents[1 - dead].err()))
    wait_for(lambda: not any(alive(pid) for pid in old))
    agents[dead] = node(*args)
    wait_for(lambda: all("gen 2" in a.out() for a in agents))
    go.touch()
    assert [a.wait() for a in agents] == [0, 0]


def test_other_nnodes_is_refused_by_name(node, wait_for):
    first = node("hang")
    wait_for(lambda: "waiting for" in first.err())
    second = node("hang", nodes="3")
    assert second.wait() == 2
    assert len(second.err().splitlines()) == 1
    assert re.search(r"--nnodes=3, but \S+ started it with 2;", second.err())


def test_taken_port_is_named_with_its_holder(node, free_port):
    with socket.socket() as s:
        s.bind(("127.0.0.1", free_port))
        s.listen()
        ctrun = node("hang", nodes="1")
        assert ctrun.wait() == 2
    assert str(free_port) in ctrun.err()
    assert f"pid {os.getpid()}" in ctrun.err()


@pytest.mark.parametrize("holder", ["bound", "connected"])
def test_taken_port_where_nobody_listens_ends_within_seconds(launch, holder):
    with socket.socket() as listener, socket.socket() as s:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        if holder == "bound":
            s.bind(("127.0.0.1", 0))
        else:
            s.connect(listener.getsockname())
        port = s.getsockname()[1]
        ctrun = launch("hang", options=["--nnodes=1:2", f"--rdzv-endpoint=127.0.0.1:{port}"])
        assert ctrun.wait() == 2
    assert f"port {port} on 127.0.0.1 is taken" in ctrun.err()
    assert holder == "bound" or f"pid {os.getpid()}" in ctrun.err()


def test_loopback_that_is_down_is_said_at_once(bin_dir, start):
    ctrun = start("unshare", "-n", bin_dir / "ctrun", "--no-python", "/bin/true")
    assert ctrun.wait() == 2
    assert "ip link set lo up" in ctrun.err() and len(ctrun.err().splitlines()) == 1


@pytest.mark.parametrize("streams", ["0", "1", "2", "01", "02", "12", "012"])
def test_closed_standard_streams_are_no_trouble(launch, streams):
    def close():
        for fd in streams:
            os.close(int(fd))

    ctrun = start_with(launch, close, "fds")
    assert ctrun.wait() == 0
    assert "1" in streams or ctrun.out().strip() == "fds: 0 1 2 3 4"


def test_too_few_descriptors_are_refused_before_anything_starts(launch):
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    ctrun = start_with(launch, lower, "print=up")
    assert ctrun.wait() == 2
    assert "48" in ctrun.err() and "40" in ctrun.err() and len(ctrun.err().splitlines()) == 1
    assert ctrun.out() == ""


HOARDER = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import store_client as sc
port = int(os.environ["MASTER_PORT"])
n, keys = map(int, sys.argv[2:])
first = sc.Client(port)
first.set("big", b"x" * (4 << 20))
assert first.get("big")  # SET has no reply: only now is it there for other connections
lazy = [sc.Client(port) for _ in range(n)]
for c in lazy:
    c.send(sc.request(sc.MULTI_GET, ["big"] * keys))
while not os.path.exists(os.environ["GO"]):
    assert first.ping()
    time.sleep(0.01)
assert first.get("big") == b"x" * (4 << 20)
"""


@pytest.mark.parametrize("connections, keys", [(40, 10), (1, 60)])
def test_worker_that_does_not_read_costs_itself_its_connections_only(
    start, bin_dir, tmp_path, wait_for, connections, keys
):
    """Asks for far more than is kept for it and reads nothing; another of its connections works."""
    script = tmp_path / "hoarder.py"
    script.write_text(HOARDER)
    ctrun = start(bin_dir / "ctrun", "--standalone", "--no-python", sys.executable, script,
                  os.path.dirname(__file__), connections, keys,
                  env={**os.environ, "GO": str(tmp_path / "go")})
    wait_for(lambda: "does not read its replies" in ctrun.err())
    (tmp_path / "go").touch()
    assert ctrun.wait() == 0, ctrun.err()


GONE = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import store_client as sc
port = int(os.environ["MASTER_PORT"])
with open(f"/proc/{os.getppid()}/stat") as f:
    agent = int(f.read().rsplit(")", 1)[1].split()[1])
os.kill(agent, signal.SIGSTOP)
sc.Client(port).close()  # in the backlog, with nobody behind it any more
os.kill(agent, signal.SIGCONT)
assert sc.Client(port).ping()  # accepted after it
"""


def test_connection_that_is_gone_before_it_is_admitted_is_not_worth_a_line(
    start, bin_dir, tmp_path
):
    script = tmp_path / "gone.py"
    script.write_text(GONE)
    ctrun = start(bin_dir / "ctrun", "--standalone", "--no-python", sys.executable, script,
                  os.path.dirname(__file__))
    assert ctrun.wait() == 0, ctrun.err()
    assert ctrun.err() == ""


def test_too_few_nodes_ends_with_94(node):
    ctrun = node("hang", options=["--rdzv-conf=join_timeout=5"])
    assert ctrun.wait() == 94
    assert "did not get its 2 nodes" in ctrun.err() and "1 came" in ctrun.err()


def test_nodes_that_name_the_job_differently_hear_of_each_other(node):
    options = ["--rdzv-conf=join_timeout=5"]
    agents = [node("hang", options=[*options, f"--rdzv-id={job}"]) for job in ("A", "B")]
    assert [a.wait() for a in agents] == [94, 94]
    said = "\n".join(a.err() for a in agents)
    assert "--rdzv-id and --rdzv-endpoint must be the same everywhere" in said
    assert re.search(r"job [AB] did not get .*\(also waiting here: job [AB]\)", said), said


def test_each_of_several_nodes_says_its_place(node):
    agents = [node("exit=0", nproc=2) for _ in range(2)]
    assert [a.wait() for a in agents] == [0, 0]
    said = sorted(line for a in agents for line in re.findall(r"joined as .*", a.err()))
    assert said == ["joined as node 0 of 2, ranks 0–1", "joined as node 1 of 2, ranks 2–3"]


def test_service_of_its_own_serves_agents(start, bin_dir, node, free_port, wait_for):
    server = start(bin_dir / "ctrun-rendezvous", f"--listen=127.0.0.1:{free_port}")
    wait_for(lambda: str(free_port) in server.err() + server.out())
    agents = [node("print=hi") for _ in range(2)]
    assert [a.wait() for a in agents] == [0, 0]
    assert server.popen.poll() is None


def test_who_serves_in_the_place_of_a_service_that_is_gone_says_so(start, bin_dir, node, free_port,
                                                                   wait_for, tmp_path):
    server = start(bin_dir / "ctrun-rendezvous", f"--listen=127.0.0.1:{free_port}")
    wait_for(lambda: str(free_port) in server.err() + server.out())
    go = tmp_path / "go"
    agents = [node("print=up", f"wait={go}") for _ in range(2)]
    wait_for(lambda: all("up" in a.out() for a in agents))
    server.signal(signal.SIGKILL)
    wait_for(lambda: all(a.out().count("up") == 2 for a in agents))
    said = re.findall("the server is gone: this node serves the rendezvous in its place port="
                      f"{free_port}\n", "".join(a.err() for a in agents))
    assert len(said) == 1
    go.touch()
    assert [a.wait() for a in agents] == [0, 0]
