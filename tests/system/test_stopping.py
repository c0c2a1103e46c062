"""How a job is stopped: signals and their time, as PID 1, with a terminal."""

import json
import os
import signal
import subprocess

import pytest
import training
from processes import alive, pids_in


@pytest.fixture
def launch_ready(launch, wait_for, tmp_path):
    """As launch; returns when every one of the fake workers has done its actions."""

    def run(*actions, options=(), nproc=2, **kwargs):
        ready = tmp_path / "ready-%r"
        ctrun = launch(*actions, f"touch={ready}", "hang",
                       options=["--standalone", f"--nproc-per-node={nproc}", *options], **kwargs)
        wait_for(lambda: all((tmp_path / f"ready-{r}").exists() for r in range(nproc)))
        return ctrun

    return run


def test_listed_signal_reaches_the_workers_and_their_environment(launch_ready):
    ctrun = launch_ready("env", f"on={int(signal.SIGUSR1)}:0",
                         options=["--signals-to-handle=SIGTERM,usr1,SIGNOPE"])
    ctrun.signal(signal.SIGUSR1)
    assert ctrun.wait() == 128 + signal.SIGUSR1
    env = json.loads(ctrun.out().splitlines()[0])
    assert env["TORCHELASTIC_SIGNALS_TO_HANDLE"] == "SIGTERM,SIGUSR1"
    assert "SIGUSR1: passed it on to the workers" in ctrun.err()
    assert ctrun.err().count("left out: SIGNOPE") == 1


def test_signal_that_is_not_listed_ends_ctrun_and_leaves_nothing(launch_ready, wait_for, tmp_path):
    pids = tmp_path / "pids"
    ctrun = launch_ready("child=double", f"pid={pids}", options=["--signals-to-handle=SIGINT"])
    assert "leaves out SIGTERM" in ctrun.err()
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == -signal.SIGTERM
    found = pids_in(pids)
    assert len(found) >= 4
    wait_for(lambda: not any(alive(pid) for pid in found))
    wait_for(lambda: not list((tmp_path / "tmp").iterdir()))


@pytest.mark.parametrize("options, env", [
    (["--shutdown-timeout=0"], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600"}),
    ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "0"}),
])
def test_workers_that_take_longer_than_they_may_are_killed(launch_ready, options, env):
    ctrun = launch_ready("ignore=15", options=options, env=env)
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM
    assert "killed the workers" not in ctrun.err()  # nobody asked again


def test_time_to_stop_that_is_none_is_a_mistake(launch):
    ctrun = launch("hang", env={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "-1"})
    assert ctrun.wait() == 2
    assert len(ctrun.err().splitlines()) == 1
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT: expects whole seconds" in ctrun.err()


def test_end_after_slurms_warning_is_passed_on_and_kills_nobody(launch_ready, wait_for):
    ctrun = launch_ready("ignore=10", f"on={int(signal.SIGTERM)}:0",
                         options=["--signals-to-handle=SIGTERM,SIGUSR1"])
    ctrun.signal(signal.SIGUSR1)
    wait_for(lambda: "SIGUSR1: passed it on" in ctrun.err())
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM
    assert "SIGTERM: passed it on" in ctrun.err()
    assert "killed" not in ctrun.err()


def test_keeper_is_not_found_by_the_words_of_the_command(launch_ready):
    """`pkill -9 -f WORD` ends agent and workers; the keeper ends the rest."""
    ctrun = launch_ready()
    keeper, = training.children(ctrun.pid)
    for name in ("comm", "cmdline"):
        with open(f"/proc/{keeper}/{name}", "rb") as f:
            assert f.read().strip(b"\0\n") == b"job-keeper"
    with open(f"/proc/{ctrun.pid}/cmdline", "rb") as f:
        assert b"fake-worker" in f.read()
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM


# --- as PID 1 ---


@pytest.fixture
def pid_1(start, bin_dir, wait_for, tmp_path):
    """pid_1(*actions) starts ctrun as a container does; returns (the container, ctrun's pid)."""

    def run(*actions):
        ready = tmp_path / "ready"
        box = start("unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                    bin_dir / "ctrun", "--standalone", bin_dir / "fake-worker", *actions,
                    f"touch={ready}", "hang", env={**os.environ, "TMPDIR": str(tmp_path)})
        wait_for(ready.exists)
        pid, = training.children(box.pid)
        return box, pid

    return run


def test_pid_1_passes_signals_on_and_ends_as_the_shell_has_it(pid_1):
    box, pid = pid_1(f"on={int(signal.SIGTERM)}:0")
    os.kill(pid, signal.SIGUSR1)  # nothing, for PID 1: a signal without a handler is dropped
    os.kill(pid, signal.SIGTERM)
    assert box.wait() == 128 + signal.SIGTERM
    assert "SIGTERM: passed it on to the workers" in box.err()


def test_pid_1_reaps_orphans_that_are_not_its_workers(pid_1, wait_for, tmp_path):
    """Such as `docker exec` leaves; orphans of the workers are the keeper's."""
    box, pid = pid_1("child=double")
    keeper, = training.children(pid)
    go = tmp_path / "go"
    subprocess.run(["nsenter", "-t", str(pid), "--pid", "--mount", "sh", "-c",
                    f"(while [ ! -e {go} ]; do sleep 0.01; done) &"], check=True)
    assert len(training.children(pid)) == 2
    go.touch()
    wait_for(lambda: training.children(pid) == [keeper])
    os.kill(pid, signal.SIGTERM)
    assert box.wait() == 128 + signal.SIGTERM
