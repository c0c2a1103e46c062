"""Killed, the same answer: any worker, any agent, everything, in the middle of anything."""

import os
import random
import re
import signal

import pytest
import training

pytestmark = pytest.mark.threads

# In a soak 50 in all: 20 of random workers, and 10 each of either agent and of everything.
KILLS = 20 if training.SOAK else 4
TIMES = range(10 if training.SOAK else 1)


@pytest.fixture
def shm_before():
    return os.listdir("/dev/shm")


def check(bin_dir, run_dir, golden, shm_before, wait_for):
    wait_for(lambda: not training.processes_of(run_dir))
    training.assert_same_answer(bin_dir, run_dir, golden())
    training.assert_nothing_left(run_dir, shm_before)


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill(pid):
    send(pid, signal.SIGKILL)


def generation(run_dir):
    folder = run_dir / "log"
    return max((int(name) for name in os.listdir(folder)), default=0) if folder.exists() else 0


def has_ended(run):
    return run.popen.poll() is not None


def test_random_workers(bin_dir, train, golden, tmp_path, shm_before, wait_for):
    """One run; a random worker dies at a random step, again and again."""
    rng = random.Random(int(os.environ.get("CTRUN_SEED", "1")))
    run_dir = tmp_path / "run"
    run = train(run_dir, nproc=3, options=[f"--max-restarts={KILLS}"])
    # each at a step of its own stretch, so that the steps suffice for all of them
    stretch = (training.STEPS - 10) / KILLS
    for i in range(KILLS):
        seen = generation(run_dir)
        target = int(i * stretch + rng.random() * stretch) + 1
        pids = wait_for(lambda: training.last_step(run_dir) >= target
                        and training.workers(run.pid) or has_ended(run), 60)
        assert not has_ended(run), run.err()
        kill(rng.choice(pids))
        wait_for(lambda: generation(run_dir) > seen or has_ended(run))
        assert not has_ended(run), run.err()
    assert run.wait(300) == 0, run.err()
    assert generation(run_dir) >= KILLS
    assert "SIGKILL" in run.err()
    check(bin_dir, run_dir, golden, shm_before, wait_for)


def names_in(folder):
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def half_written(run_dir):
    """The names in the temporary folder of a checkpoint, None when there is no such."""
    found = [name for name in names_in(run_dir / "ckpt") if name.endswith(".tmp")]
    return names_in(run_dir / "ckpt" / found[-1]) if found else None


# Of rank 0: its second checkpoint writes the shard, then the manifest, then is renamed.
AT_THE_POINT = {
    "a shard": ("ckpt.write:3:kill", [r"shard-00001-.*"]),
    "the end of a shard": ("ckpt.fsync:3:kill", [r"shard-00001-.*"]),
    "the manifest": ("ckpt.write:4:kill", [r"manifest.json", r"shard-00001-.*"]),
    "the end of the manifest": ("ckpt.fsync:4:kill", [r"manifest.json", r"shard-00001-.*"]),
    "before the rename": ("ckpt.rename:2:kill", [r"manifest.json", r"shard-00001-.*"]),
}


@pytest.mark.faults_only
@pytest.mark.parametrize("point", AT_THE_POINT)
def test_at_a_point_of_a_checkpoint(
    bin_dir, start, corpus, golden, tmp_path, shm_before, wait_for, point
):
    """Rank 0 dies right there."""
    fault, names = AT_THE_POINT[point]
    run_dir, seen = tmp_path / "run", tmp_path / "seen"
    # armed in the first attempt alone; the second looks at what the first has left
    script = tmp_path / "armed"
    script.write_text(f"""#!/bin/sh
if [ "$RANK" = 0 ]; then
    if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
        CTRUN_FAULT={fault}; export CTRUN_FAULT
    elif [ ! -e {seen} ]; then
        ls -d {run_dir}/ckpt/*.tmp/* > {seen}
    fi
fi
exec "$@"
""")
    script.chmod(0o755)
    run = start(bin_dir / "ctrun", "--nproc-per-node=2", "--max-restarts=1", script,
                bin_dir / "ctrun-worker", *training.overrides(corpus, run_dir))
    assert run.wait(300) == 0, run.err()
    assert "SIGKILL" in run.err()
    left = [line.rsplit("/", 1)[1] for line in seen.read_text().splitlines()]
    for name in names:
        assert any(re.fullmatch(name, found) for found in left), left
    check(bin_dir, run_dir, golden, shm_before, wait_for)


# What a folder has when it is time: some checkpoints are too quick for the eye.
IN_TIME = {
    "a shard": lambda names: "manifest.json" not in names,
    "the manifest": lambda names: "manifest.json" in names,
}
TRIES = 10


def stopped_while_writing(run, run_dir, is_time):
    """Stops the workers, then looks; True when they stand still in the middle of it."""
    pids = training.workers(run.pid)
    for pid in pids:
        send(pid, signal.SIGSTOP)
    names = half_written(run_dir)
    if pids and names is not None and is_time(names):
        return True
    for pid in pids:
        send(pid, signal.SIGCONT)
    return False


@pytest.mark.parametrize("moment", IN_TIME)
def test_while_a_checkpoint_is_written(
    bin_dir, train, golden, tmp_path, shm_before, wait_for, moment
):
    """Stopped when a temporary folder is seen, so that it is still there at the kill."""
    is_time = IN_TIME[moment]
    for i in range(TRIES):
        run_dir = tmp_path / f"run{i}"
        run = train(run_dir, options=["--max-restarts=1"])
        caught = False
        while not caught and not has_ended(run):
            names = half_written(run_dir)
            caught = (names is not None and is_time(names)
                      and stopped_while_writing(run, run_dir, is_time))
        if caught:
            break
        assert run.wait() == 0, run.err()
    assert caught, f"not once in {TRIES} runs"
    assert is_time(half_written(run_dir))
    pids = training.workers(run.pid)
    kill(pids[0])
    for pid in pids[1:]:
        send(pid, signal.SIGCONT)
    assert run.wait() == 0, run.err()
    assert "SIGKILL" in run.err()
    check(bin_dir, run_dir, golden, shm_before, wait_for)


def two_agents(train, run_dir, port, count):
    options = ["--nnodes=2", "--rdzv-id=pair", f"--rdzv-endpoint=127.0.0.1:{port}",
               "--max-restarts=0"]
    return [train(run_dir, nproc=1, options=options) for _ in range(count)]


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("victim", ["owner of the endpoint", "other"])
def test_an_agent_with_its_workers(
    bin_dir, train, golden, tmp_path, shm_before, wait_for, free_port, victim, time
):
    """Its node comes back by the same command; no restart is used."""
    run_dir = tmp_path / "run"
    first = two_agents(train, run_dir, free_port, 1)[0]
    wait_for(lambda: "waiting" in first.err() or training.workers(first.pid))
    second = two_agents(train, run_dir, free_port, 1)[0]
    wait_for(lambda: training.last_step(run_dir) >= 10)
    dead, alive = (first, second) if victim == "owner of the endpoint" else (second, first)
    kill(dead.pid)
    back = two_agents(train, run_dir, free_port, 1)[0]
    assert back.wait() == 0, back.err()
    assert alive.wait() == 0, alive.err()
    check(bin_dir, run_dir, golden, shm_before, wait_for)


@pytest.mark.parametrize("time", TIMES)
def test_everything_at_once(bin_dir, train, golden, tmp_path, shm_before, wait_for, time):
    run_dir = tmp_path / "run"
    run = train(run_dir)
    wait_for(lambda: training.last_step(run_dir) >= 13)
    for pid in [run.pid, *training.children(run.pid), *training.workers(run.pid)]:
        kill(pid)
    wait_for(lambda: not training.processes_of(run_dir))
    again = train(run_dir)
    assert again.wait() == 0, again.err()
    check(bin_dir, run_dir, golden, shm_before, wait_for)


def test_ctrl_c_saves_and_goes_on(bin_dir, train, golden, tmp_path, shm_before, wait_for):
    run_dir = tmp_path / "run"
    run = train(run_dir)
    wait_for(lambda: training.last_step(run_dir) >= 9)
    run.signal(signal.SIGINT)
    assert run.wait() == 128 + signal.SIGINT
    wait_for(lambda: not training.processes_of(run_dir))
    stopped_at = training.last_step(run_dir)
    assert training.checkpoints(run_dir)[-1].name.startswith(f"step-{stopped_at:08d}-")
    again = train(run_dir)
    assert again.wait() == 0, again.err()
    assert f"step {stopped_at} of" in again.out()
    check(bin_dir, run_dir, golden, shm_before, wait_for)
