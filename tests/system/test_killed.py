"""Killed, the same answer: any worker, any agent, everything, in the middle of anything."""

import os
import random
import signal

import pytest
import training

KILLS = 50 if training.SOAK else 4


@pytest.fixture
def shm_before():
    return os.listdir("/dev/shm")


def check(bin_dir, run_dir, golden, shm_before, wait_for):
    wait_for(lambda: not training.processes_of(run_dir))
    training.assert_same_answer(bin_dir, run_dir, golden())
    training.assert_nothing_left(run_dir, shm_before)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def generation(run_dir):
    folder = run_dir / "log"
    return max((int(name) for name in os.listdir(folder)), default=0) if folder.exists() else 0


def test_random_workers(bin_dir, train, golden, tmp_path, shm_before, wait_for):
    """One run; a random worker dies at a random step, again and again."""
    seed = int(os.environ.get("CTRUN_SEED", "1"))
    rng = random.Random(seed)
    run_dir = tmp_path / "run"
    run = train(run_dir, nproc=3, options=[f"--max-restarts={KILLS}"])
    for _ in range(KILLS):
        seen = generation(run_dir)
        target = min(training.last_step(run_dir) + rng.randint(1, 6), training.STEPS - 2)
        wait_for(lambda: training.last_step(run_dir) >= target and training.workers(run.pid)
                 or run.popen.poll() is not None, 60)
        pids = training.workers(run.pid)
        if run.popen.poll() is not None or not pids:
            break
        kill(rng.choice(pids))
        wait_for(lambda: generation(run_dir) > seen or run.popen.poll() is not None, 60)
    assert run.wait(300) == 0, run.err()
    assert "SIGKILL" in run.err()
    check(bin_dir, run_dir, golden, shm_before, wait_for)


@pytest.mark.parametrize("fault", ["a shard", "the manifest", "before the rename"])
def test_while_a_checkpoint_is_written(
    bin_dir, train, golden, tmp_path, shm_before, wait_for, fault
):
    """Kill as soon as a temporary checkpoint with such a content appears."""
    run_dir = tmp_path / "run"
    run = train(run_dir, options=["--max-restarts=1"])
    pattern = {"a shard": "step-*.tmp", "the manifest": "step-*.tmp/shard-*",
               "before the rename": "step-*.tmp/manifest.json"}[fault]

    def caught():
        return list((run_dir / "ckpt").glob(pattern)) or training.last_step(run_dir) > 30

    wait_for(caught, 60)
    for pid in training.workers(run.pid)[:1]:
        kill(pid)
    assert run.wait(120) == 0, run.err()
    check(bin_dir, run_dir, golden, shm_before, wait_for)


def two_agents(train, run_dir, port, count):
    options = ["--nnodes=2", "--rdzv-id=pair", f"--rdzv-endpoint=127.0.0.1:{port}",
               "--max-restarts=0"]
    return [train(run_dir, nproc=1, options=options) for _ in range(count)]


@pytest.mark.parametrize("victim", ["owner of the endpoint", "other"])
def test_an_agent_with_its_workers(
    bin_dir, train, golden, tmp_path, shm_before, wait_for, free_port, victim
):
    """Its node comes back by the same command; no restart is used."""
    run_dir = tmp_path / "run"
    first = two_agents(train, run_dir, free_port, 1)[0]
    wait_for(lambda: "waiting" in first.err() or training.workers(first.pid))
    second = two_agents(train, run_dir, free_port, 1)[0]
    wait_for(lambda: training.last_step(run_dir) >= 10, 60)
    dead, alive = (first, second) if victim == "owner of the endpoint" else (second, first)
    kill(dead.pid)
    back = two_agents(train, run_dir, free_port, 1)[0]
    assert back.wait(120) == 0, back.err()
    assert alive.wait(120) == 0, alive.err()
    check(bin_dir, run_dir, golden, shm_before, wait_for)


def test_everything_at_once(bin_dir, train, golden, tmp_path, shm_before, wait_for):
    run_dir = tmp_path / "run"
    run = train(run_dir)
    wait_for(lambda: training.last_step(run_dir) >= 13, 60)
    for pid in [run.pid, *training.children(run.pid), *training.workers(run.pid)]:
        kill(pid)
    wait_for(lambda: not training.processes_of(run_dir))
    again = train(run_dir)
    assert again.wait(120) == 0, again.err()
    check(bin_dir, run_dir, golden, shm_before, wait_for)


def test_ctrl_c_saves_and_goes_on(bin_dir, train, golden, tmp_path, shm_before, wait_for):
    run_dir = tmp_path / "run"
    run = train(run_dir)
    wait_for(lambda: training.last_step(run_dir) >= 9, 60)
    run.signal(signal.SIGINT)
    assert run.wait(60) == 128 + signal.SIGINT
    wait_for(lambda: not training.processes_of(run_dir))
    stopped_at = training.last_step(run_dir)
    assert training.checkpoints(run_dir)[-1].name.startswith(f"step-{stopped_at:08d}-")
    again = train(run_dir)
    assert again.wait(120) == 0, again.err()
    assert f"step {stopped_at} of" in again.out()
    check(bin_dir, run_dir, golden, shm_before, wait_for)
