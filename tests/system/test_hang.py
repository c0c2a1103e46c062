"""A rank that stops while the others wait is found, named, and handled as --on-hang says."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
import training
from conftest import ROOT

TIMES = 50 if training.SOAK else 5
AT_ONCE = 5

# Trains until somebody ends it; steps of a few ms.
ENDLESS = ["train.steps=1000000", "checkpoint.every=200", "log.every=100000", "eval.every=400"]

SCRIPT = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT / "configs")!r})
import ctrun_progress as progress

rank, guilty, how = int(os.environ["RANK"]), int(sys.argv[1]), sys.argv[2]
is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

def stay_here():
    while how == "spin":
        pass
    time.sleep(1000)

for step in range(1, 31):
    progress.step(step, "forward")
    time.sleep(0.05)
    progress.loss(1 / step, 1000)
    if step == 30 and rank == guilty and is_first:
        stay_here()
    if step == 30 and is_first:
        progress.phase("wait")
        time.sleep(1000)
"""


def pid_of(ctrun, rank):
    for pid in training.workers(ctrun.pid):
        env = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if b"RANK=%d" % rank in env:
            return pid
    return None


def verdicts(ctrun):
    return re.findall(r"rank (\d+) on \S+ \(local rank \d+, pid (\d+)\) hangs: (.*)", ctrun.err())


def end(ctrun):
    ctrun.signal(signal.SIGKILL)
    ctrun.wait()


@pytest.fixture(params=["alone", pytest.param("certificates", marks=pytest.mark.soak)])
def rendezvous(request, start_server, bin_dir, tmp_path):
    """rendezvous(i) are the options by which job i meets: its own server, or one with keys."""
    if request.param == "alone":
        return lambda i: []
    pki = tmp_path / "pki"
    subprocess.run([bin_dir / "ctrun", "keygen", "--ca", pki], check=True, capture_output=True)

    def shows(name):
        return [f"--tls-ca={pki}/ca.pem", f"--tls-cert={pki}/{name}.pem",
                f"--tls-key={pki}/{name}.key"]

    port = start_server(*shows("service")).ports[0]
    return lambda i: [f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id=hang{i}", *shows("agent")]


@pytest.mark.parametrize("first", range(0, TIMES, AT_ONCE))
def test_a_stopped_rank_is_named_and_the_job_goes_on(
    train, tmp_path, wait_for, rendezvous, first
):
    jobs = []
    for i in range(first, first + AT_ONCE):
        n = 2 + i % 3
        ctrun = train(tmp_path / f"run{i}", *ENDLESS, nproc=n,
                      options=["--max-restarts=1", *rendezvous(i)])
        jobs.append((ctrun, i % n, tmp_path / f"run{i}"))
    for i, (ctrun, guilty, run) in enumerate(jobs):
        # sooner or later in a step, a save, an evaluation
        wait_for(lambda: training.last_step(run) > 300 + 37 * (first + i))
        os.kill(pid_of(ctrun, guilty), signal.SIGSTOP)
    for ctrun, guilty, run in jobs:
        wait_for(lambda: "restarting (1 of 1)" in ctrun.err())
        assert [v[0] for v in verdicts(ctrun)] == [str(guilty)], ctrun.err()
        assert "its process is stopped (T)" in ctrun.err()
        assert f"rank {guilty} on" in re.search("generation 1 is over; (.*)", ctrun.err())[1]
        before = training.last_step(run)
        wait_for(lambda: training.last_step(run) > before)
        end(ctrun)


# Which ranks, of three, in runs at once; processors are scarcer than time.
GUILTY = {"spin": [2], "sleep": [0, 1, 2]}


@pytest.mark.thorough
@pytest.mark.parametrize("how, round_", [(how, i) for how in GUILTY for i in range(
    50 // len(GUILTY[how]) if training.SOAK else 1)])
def test_a_script_that_stops_in_the_middle_is_named_with_its_phase(
    start, bin_dir, tmp_path, wait_for, rendezvous, how, round_
):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHON_EXEC": sys.executable}
    runs = [(start(bin_dir / "ctrun", "--nproc-per-node=3", "--max-restarts=1",
                   *rendezvous(guilty), script, guilty, how, env=env), guilty)
            for guilty in ((g + round_) % 3 for g in GUILTY[how])]
    for ctrun, guilty in runs:
        assert ctrun.wait() == 0, ctrun.err()
        [(rank, _, what)] = verdicts(ctrun)
        assert rank == str(guilty), ctrun.err()
        assert what.startswith("at step 30, forward, for "), what
        assert "and 2 ranks wait for it; its process " in what, what
        assert ("computes (R)" if how == "spin" else "sleeps (S)") in what, what
        assert f"rank {guilty} on" in re.search("generation 1 is over; (.*)", ctrun.err())[1]
        stack = ctrun.err().split(f"where rank {guilty} is")[1]
        assert re.search(r'File ".*/train.py", line \d+ in stay_here\n', stack), ctrun.err()


TRACER = """
import ctypes, signal, sys
assert ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None) == 0  # PTRACE_SEIZE
signal.pause()
"""


@pytest.mark.thorough
def test_a_rank_with_a_debugger_is_left_alone_until_that_goes(start, bin_dir, tmp_path, wait_for):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ctrun = start(bin_dir / "ctrun", "--nproc-per-node=2", "--max-restarts=1", script, 1, "sleep",
                  env={**os.environ, "PYTHON_EXEC": sys.executable})
    wait_for(lambda: pid_of(ctrun, 1))
    tracer = start(sys.executable, "-c", TRACER, pid_of(ctrun, 1))
    wait_for(lambda: verdicts(ctrun))
    [(rank, _, what)] = verdicts(ctrun)
    assert rank == "1" and "and 1 rank waits for it" in what, what
    name = pathlib.Path(f"/proc/{tracer.pid}/comm").read_text().strip()
    assert f"its process is traced ({name}, pid {tracer.pid}); it is left alone" in what, what
    assert "generation 1 is over" not in ctrun.err()
    tracer.signal(signal.SIGKILL)
    assert ctrun.wait() == 0, ctrun.err()
    assert [v[0] for v in verdicts(ctrun)] == ["1", "1"]
    assert "restarting (1 of 1)" in ctrun.err()


SLOW_GDB = """#!/bin/sh
echo $$ >{pid}.new && mv {pid}.new {pid} && exec sleep 60
"""


def slow_gdb(tmp_path):
    """The environment in which it is found, and the file that has its pid once it runs."""
    pid = tmp_path / "pid"
    gdb = tmp_path / "bin/gdb"
    gdb.parent.mkdir()
    gdb.write_text(SLOW_GDB.format(pid=pid))
    gdb.chmod(0o755)
    return {**os.environ, "PATH": f"{gdb.parent}:{os.environ['PATH']}",
            "PYTHON_EXEC": sys.executable}, pid


def test_a_stack_that_takes_its_time_is_not_waited_for_at_the_end(
    start, bin_dir, tmp_path, wait_for
):
    env, pid = slow_gdb(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ctrun = start(bin_dir / "ctrun", "--nproc-per-node=2", "--on-hang=report", script, 1, "sleep",
                  env=env)
    wait_for(pid.exists)
    began = time.monotonic()
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM, ctrun.err()
    assert time.monotonic() - began < 5  # launcher/inspect.h: it has 8 s
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_a_gdb_that_does_not_end_holds_up_neither_the_stack_nor_the_restart(
    start, bin_dir, tmp_path, wait_for
):
    """Killed, it is not gone either: a tracer of its own keeps it."""
    env, pid = slow_gdb(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ctrun = start(bin_dir / "ctrun", "--nproc-per-node=2", "--max-restarts=1", script, 1, "sleep",
                  env=env)
    wait_for(lambda: verdicts(ctrun))
    named = time.monotonic()
    wait_for(pid.exists)
    tracer = start(sys.executable, "-c", TRACER, pid.read_text().strip())
    wait_for(lambda: "restarting (1 of 1)" in ctrun.err())
    assert time.monotonic() - named < 7  # launcher/inspect.h: gdb has 2.5 s of them
    _, at_once, in_c = re.split("where rank 1 is(?: in C)?$", ctrun.err(), flags=re.M)
    assert re.search(r'File ".*/train.py", line \d+ in stay_here\n', at_once), ctrun.err()
    assert "(gdb has not come to its end within 2500 ms)" in in_c, ctrun.err()
    assert ctrun.wait() == 0, ctrun.err()
    tracer.signal(signal.SIGKILL)


@pytest.mark.faults_only
@pytest.mark.parametrize("keys", [
    [],
    pytest.param(["comm.kind=tcp"], marks=pytest.mark.soak),
    pytest.param(["parallel.strategy=zero2", "train.reduction=fast"], marks=pytest.mark.soak),
    pytest.param(["parallel.strategy=fsdp"], marks=pytest.mark.soak),
    pytest.param(["parallel.strategy=fsdp", "comm.kind=tcp"], marks=pytest.mark.soak),
    pytest.param(["parallel.strategy=hsdp", "parallel.dp_shard=2"], marks=pytest.mark.soak),
], ids=" ".join)
def test_an_engine_that_computes_for_ever_is_named_by_who_waits_for_it(
    start, bin_dir, corpus, tmp_path, wait_for, keys
):
    """Without a process that is stopped, by the words of the collectives alone."""
    script = tmp_path / "worker"
    script.write_text('#!/bin/sh\n[ "$RANK$TORCHELASTIC_RESTART_COUNT" = 20 ] && '
                      'export CTRUN_FAULT=train.leaf:200:spin\nexec "$@"\n')
    script.chmod(0o755)
    run = tmp_path / "run"
    ctrun = start(bin_dir / "ctrun", "--nproc-per-node=4", "--max-restarts=1", script,
                  bin_dir / "ctrun-worker", *training.overrides(corpus, run, *ENDLESS, *keys))
    wait_for(lambda: "restarting (1 of 1)" in ctrun.err())
    [(rank, _, what)] = verdicts(ctrun)
    assert rank == "2", ctrun.err()
    assert "forward, for" in what and "3 ranks wait for it; its process computes (R)" in what, what
    wait_for(lambda: training.last_step(run) > 300)
    end(ctrun)


@pytest.mark.thorough
def test_with_report_every_node_says_so_once_and_training_goes_on(
    train, tmp_path, wait_for, free_port, bin_dir
):
    def hang():
        done = subprocess.run([bin_dir / "ctrun", "status", "hang", "--json", "--endpoint",
                               f"127.0.0.1:{free_port}"], capture_output=True, check=True)
        return json.loads(done.stdout)["jobs"][0].get("hang")

    run = tmp_path / "run"
    options = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{free_port}", "--rdzv-id=hang",
               "--on-hang=report", "--max-restarts=3"]
    nodes = [train(run, "train.steps=1000000", "checkpoint.every=0", "log.every=100000",
                   nproc=1, options=options) for _ in range(2)]
    wait_for(lambda: training.last_step(run) > 300)
    guilty = next(n for n in nodes if pid_of(n, 1))
    pid = pid_of(guilty, 1)
    os.kill(pid, signal.SIGSTOP)
    for node in nodes:
        wait_for(lambda: "where rank 1 is" in node.err())
        assert [v[:2] for v in verdicts(node)] == [("1", str(pid))]
    assert hang()["rank"] == 1
    before = training.last_step(run)
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: training.last_step(run) > before + 100)
    assert hang() is None
    for node in nodes:
        assert len(verdicts(node)) == 1
        assert node.err().count("rank 1 on") == 2 and "hangs no more" in node.err()
        assert "generation 1 is over" not in node.err()
    for node in nodes:
        end(node)


@pytest.mark.thorough
def test_a_service_that_was_started_anew_still_finds_who_hangs(
    train, start_server, bin_dir, tmp_path, wait_for
):
    """What ranks report is not durable: the agents say it again."""
    def ask(verb):
        done = subprocess.run([bin_dir / "ctrun", verb, "hang", "--json", "--endpoint",
                               f"127.0.0.1:{server.ports[0]}"], capture_output=True, text=True)
        return done.stdout + done.stderr

    state = f"--state-dir={tmp_path / 'state'}"
    server = start_server(state)
    listen = f"--listen=127.0.0.1:{server.ports[0]}"
    ctrun = train(tmp_path / "run", *ENDLESS, nproc=3, options=[
        f"--rdzv-endpoint=127.0.0.1:{server.ports[0]}", "--rdzv-id=hang", "--max-restarts=1"])
    wait_for(lambda: training.last_step(tmp_path / "run") > 300)
    server.process.signal(signal.SIGKILL)
    server.process.wait()
    start_server(state, listen)
    wait_for(lambda: "answers again" in ctrun.err())
    wait_for(lambda: '"step_ms":' in ask("status"))  # it has seen what steps take
    assert len(re.findall(r'"loss": ?[0-9.]+', ask("ps"))) == 3, ask("ps")
    os.kill(pid_of(ctrun, 1), signal.SIGSTOP)
    wait_for(lambda: "restarting (1 of 1)" in ctrun.err())
    assert [v[0] for v in verdicts(ctrun)] == ["1"], ctrun.err()
    end(ctrun)


def test_nodes_must_say_the_same_of_hangs(launch, free_port):
    options = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{free_port}", "--max-restarts=1"]
    first = launch("exit=0", options=[*options, "--on-hang=report"])
    other = launch("exit=0", options=[*options, "--on-hang=restart"])
    codes = {first.popen.poll(), other.popen.poll()}
    while codes == {None}:
        codes = {first.popen.poll(), other.popen.poll()}
    assert 2 in codes
    assert "give every node the same --on-hang" in first.err() + other.err()
