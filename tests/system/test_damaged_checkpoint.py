"""A damaged checkpoint is never loaded and never harms the last good one."""

import os
import subprocess

import pytest
import training

pytestmark = pytest.mark.threads

HALF = "train.steps=20"


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path):
    os.truncate(path, path.stat().st_size - 1)


def extend(path):
    with open(path, "ab") as f:
        f.write(b"\0")


DAMAGE = {
    "flipped byte in a shard": ("shard-00001*", flip),
    "flipped byte in another rank's shard": ("shard-00002*", flip),
    "flipped byte in the manifest": ("manifest.json", flip),
    "cut shard": ("shard-00001*", cut),
    "cut manifest": ("manifest.json", cut),
    "longer shard": ("shard-00002*", extend),
    "missing shard": ("shard-00002*", os.unlink),
    "missing manifest": ("manifest.json", os.unlink),
}


@pytest.fixture(scope="module")
def half_way(bin_dir, corpus, tmp_path_factory):
    """A run of two ranks that has stopped after 20 of its steps: copied by each test."""
    run_dir = tmp_path_factory.mktemp("half") / "run"
    subprocess.run(
        [bin_dir / "ctrun", "--nproc-per-node=2", "ctrun-worker",
         *training.overrides(corpus, run_dir, HALF)],
        check=True, stdout=subprocess.DEVNULL, timeout=training.PATIENCE,
    )
    return run_dir


@pytest.mark.parametrize("kind", DAMAGE)
def test_is_rejected_with_a_line_and_the_one_before_is_used(
    bin_dir, train, half_way, tmp_path, kind
):
    run_dir = tmp_path / "run"
    subprocess.run(["cp", "-r", half_way, run_dir], check=True)
    good, newest = training.checkpoints(run_dir)[-2:]
    step = training.step_of(good)
    before = training.state_hash(bin_dir, run_dir, step)
    pattern, damage = DAMAGE[kind]
    victim = next(newest.glob(pattern))
    damage(victim)
    verify = subprocess.run(
        [bin_dir / "ctrun", "ckpt", "verify", newest], capture_output=True, text=True
    )
    assert verify.returncode == 1
    assert victim.name in verify.stdout + verify.stderr
    run = train(run_dir, "train.steps=21", "checkpoint.keep=0")
    assert run.wait() == 0, run.err()
    assert run.err().count("rejected") == 1, run.err()
    assert newest.name in run.err() and victim.name in run.err()
    assert f"resumed from {good.name}" in run.out()
    assert training.state_hash(bin_dir, run_dir, step) == before
    assert [m["step"] for m in training.metrics(run_dir)] == list(range(1, 22))


@pytest.mark.thorough
def test_where_all_are_damaged_nothing_of_them_is_left_in_the_state(
    bin_dir, train, half_way, golden, tmp_path
):
    """They are loaded while they are verified: what was loaded must go again."""
    run_dir = tmp_path / "run"
    subprocess.run(["cp", "-r", half_way, run_dir], check=True)
    for path in training.checkpoints(run_dir):
        flip(next(path.glob("shard-00002*")))
    run = train(run_dir)
    assert run.wait() == 0, run.err()
    assert "rejected" in run.err() and "resumed" not in run.out()
    training.assert_same_answer(bin_dir, run_dir, golden())


def test_a_cleaned_up_log_folder_does_not_bring_back_an_older_checkpoint(
    bin_dir, train, half_way, tmp_path
):
    """New checkpoints must be newer than all that are there, whatever log/ says."""
    run_dir = tmp_path / "run"
    subprocess.run(["cp", "-r", half_way, run_dir], check=True)
    for old in training.checkpoints(run_dir):
        old.rename(str(old).replace("-g1", "-g7"))
    subprocess.run(["rm", "-r", run_dir / "log"], check=True)
    run = train(run_dir, "train.steps=24", "checkpoint.resume=never")
    assert run.wait() == 0, run.err()
    assert training.checkpoints(run_dir)[-1].name == "step-00000024-g8"


def test_leftovers_with_folders_in_them_are_swept_and_what_cannot_be_is_a_warning(
    bin_dir, start, corpus, tmp_path
):
    run_dir = tmp_path / "run"
    (run_dir / "ckpt/trash-z/a/b/c/d").mkdir(parents=True)
    mounted = run_dir / "ckpt/step-mine.tmp"
    mounted.mkdir()
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {mounted} && exec "$@"', "sh"]
    run = start(*mount, bin_dir / "ctrun-worker",
                *training.overrides(corpus, run_dir, "train.steps=2"))
    assert run.wait() == 0, run.err()
    assert run.err().count("not deleted") == 1 and "step-mine.tmp" in run.err(), run.err()
    assert not (run_dir / "ckpt/trash-z").exists()


@pytest.fixture
def small_disk(tmp_path):
    """A file system that holds one checkpoint and not two."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=800k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_costs_a_line_and_the_last_good_one_stays(
    bin_dir, train, tmp_path, small_disk
):
    run_dir = tmp_path / "run"
    folder = small_disk / "ckpt"
    run = train(run_dir, f"checkpoint.dir={folder}", "checkpoint.keep=0")
    code = run.wait()
    assert code == 82, run.err()  # the last one could not be written either
    assert "was not written" in run.err() and "No space left" in run.err()
    assert [m["step"] for m in training.metrics(run_dir)] == list(range(1, training.STEPS + 1))
    kept = sorted(set(os.listdir(folder)) - {".lock"})
    assert kept and all(name.startswith("step-") and ".tmp" not in name for name in kept)
    verify = subprocess.run([bin_dir / "ctrun", "ckpt", "verify", folder / kept[-1]])
    assert verify.returncode == 0


# The exit code is 82 for the storage, 1 for what a restart may not meet.
@pytest.mark.faults_only
@pytest.mark.parametrize(
    "key", ["checkpoint.resume=auto", "checkpoint.resume=", "model.init_from="]
)
@pytest.mark.parametrize("error, code", [("EIO", 82), ("EMFILE", 1)])
def test_a_checkpoint_that_cannot_be_read_now_is_neither_rejected_nor_a_mistake(
    bin_dir, start, corpus, tmp_path, key, error, code
):
    first = tmp_path / "first"
    worker = [bin_dir / "ctrun-worker", *training.overrides(corpus, first, "train.steps=4")]
    assert start(*worker).wait() == 0
    before = training.checkpoints(first)
    run_dir = first if key.endswith("auto") else tmp_path / "run"
    given = key if key.endswith("auto") else f"{key}{before[-1]}"
    for fault in ("ckpt.open_read:1", "ckpt.open_read:2", "ckpt.read:1"):
        run = start(bin_dir / "ctrun-worker",
                    *training.overrides(corpus, run_dir, "train.steps=8", given),
                    env={**os.environ, "CTRUN_FAULT": f"{fault}:{error}"})
        assert run.wait() == code, run.err()
        assert "rejected" not in run.err()
        assert training.checkpoints(first) == before


HIDES = """#!/bin/sh
shift
if [ "$RANK" = 1 ] && [ "$CTRUN_GENERATION" = 1 ]; then
    exec unshare -m sh -c 'mount --bind /dev/null "{shard}" && exec "$@"' sh "{worker}" "$@"
fi
exec "{worker}" "$@"
"""


@pytest.fixture
def hidden(bin_dir, train, tmp_path):
    """A half-trained run, a shard of it, and what starts a worker; rank 1 of the first
    generation has another file in the shard's place."""
    run_dir = tmp_path / "run"
    run = train(run_dir, HALF, "parallel.strategy=fsdp")
    assert run.wait() == 0, run.err()
    shard = next(training.checkpoints(run_dir)[-1].glob("shard-00001-*"))
    script = tmp_path / "hides.sh"
    script.write_text(HIDES.format(shard=shard, worker=bin_dir / "ctrun-worker"))
    script.chmod(0o755)
    return run_dir, shard, script


def test_a_node_that_cannot_read_what_rank_0_has_verified_starts_again(train, hidden):
    """Its storage is behind, say: no mistake of the configuration, which would end the job."""
    run_dir, shard, script = hidden
    run = train(run_dir, "parallel.strategy=fsdp", options=["--max-restarts=1", script])
    assert run.wait() == 0, run.err()
    assert "rank 1 on" in run.err() and "ended with exit code 82" in run.err()
    told = max((run_dir / "log").glob("*/rank1.log"), key=lambda p: p.stat().st_size).read_text()
    assert "rank 1: this node cannot read what rank 0 has verified" in told
    assert shard.name in told
    assert [m["step"] for m in training.metrics(run_dir)] == list(range(1, training.STEPS + 1))


def test_a_rank_that_fails_is_the_first_cause_however_long_it_would_close(
    train, hidden, tmp_path
):
    """Its peers notice and go; its profile cannot be written, as the pipe is full."""
    run_dir, _, script = hidden
    os.mkfifo(tmp_path / "trace.rank1")
    pipe = os.open(tmp_path / "trace.rank1", os.O_RDWR | os.O_NONBLOCK)
    try:
        while os.write(pipe, bytes(4096)):
            pass
    except BlockingIOError:
        pass
    run = train(run_dir, "parallel.strategy=fsdp", f"--profile={tmp_path}/trace",
                options=[script])
    assert run.wait() == 82, run.err()
    assert "rank 0: stopped because of rank 1" in run.err()
    os.close(pipe)
