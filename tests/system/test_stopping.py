"""How a job is stopped: signals and their time, as PID 1, with a terminal."""

import json
import signal

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
