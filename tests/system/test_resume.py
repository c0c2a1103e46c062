"""Where training goes on: with a silent service, with checkpoint.resume, after a kill."""

import os
import re
import signal

import pytest
import training

pytestmark = pytest.mark.threads

STEPS = "train.steps=400"
LONG = "train.steps=240"  # enough to be killed in


@pytest.fixture
def service(start, bin_dir, free_port, wait_for):
    process = start(bin_dir / "ctrun-rendezvous", "--listen", f"127.0.0.1:{free_port}")
    wait_for(lambda: "listening" in process.out() + process.err())
    process.endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port}"
    yield process
    process.signal(signal.SIGCONT)


@pytest.mark.thorough
@pytest.mark.parametrize("nproc", [1, 2])
def test_training_goes_on_and_ends_the_same_when_the_service_wakes_up(
    bin_dir, train, service, tmp_path, wait_for, nproc
):
    run_dir, alone = tmp_path / "run", tmp_path / "alone"
    run = train(run_dir, STEPS, nproc=nproc, options=["--rdzv-id=s", service.endpoint])
    wait_for(lambda: training.last_step(run_dir) >= 6)
    service.signal(signal.SIGSTOP)
    asleep_at = training.last_step(run_dir)
    wait_for(lambda: training.last_step(run_dir) >= asleep_at + 40)  # ten intervals
    service.signal(signal.SIGCONT)
    assert run.wait() == 0, run.err()
    assert train(alone, STEPS, nproc=1).wait() == 0
    assert training.loss_column(run_dir) == training.loss_column(alone)
    hashes = {training.state_hash(bin_dir, d, step=400) for d in (run_dir, alone)}
    assert len(hashes) == 1


def test_resume_never_and_path_begin_there(bin_dir, train, tmp_path):
    run_dir = tmp_path / "run"
    assert train(run_dir, "train.steps=12", "checkpoint.keep=0").wait() == 0
    given = training.checkpoints(run_dir)[0]
    path = train(run_dir, "train.steps=13", f"checkpoint.resume={given}")
    assert path.wait() == 0, path.err()
    assert f"resumed from {given.name}" in path.out()
    never = train(run_dir, "train.steps=3", "checkpoint.resume=never")
    assert never.wait() == 0, never.err()
    assert "resumed" not in never.out()
    assert [m["step"] for m in training.metrics(run_dir)] == [1, 2, 3]


def test_a_training_that_begins_anew_keeps_the_metrics_of_the_one_before(train, tmp_path):
    run_dir = tmp_path / "run"
    assert train(run_dir, "train.steps=6").wait() == 0
    before = (run_dir / "metrics.jsonl").read_bytes()
    never = train(run_dir, "train.steps=3", "checkpoint.resume=never")
    assert never.wait() == 0, never.err()
    assert (run_dir / "metrics.before-g2.jsonl").read_bytes() == before
    assert "checkpoint.keep will delete them; its metrics are kept in" in never.err()
    (run_dir / "ckpt").rename(tmp_path / "away")
    before = (run_dir / "metrics.jsonl").read_bytes()
    anew = train(run_dir, "train.steps=2")
    assert anew.wait() == 0, anew.err()
    assert (run_dir / "metrics.before-g3.jsonl").read_bytes() == before
    assert anew.err().count("kept in metrics.before-g3.jsonl") == 1, anew.err()
    assert [m["step"] for m in training.metrics(run_dir)] == [1, 2]


@pytest.mark.parametrize("damage", ["", None, b"\xff\0" * 1000],
                         ids=["emptied", "deleted", "random bytes"])
def test_a_resume_says_which_metrics_are_gone(train, tmp_path, damage):
    run_dir = tmp_path / "run"
    assert train(run_dir, "train.steps=6").wait() == 0
    path = run_dir / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage + b"\n" + lines[3] if damage else b"")
    again = train(run_dir, "train.steps=8")
    assert again.wait() == 0, again.err()
    missing = "1-3, 5-6" if damage else "1-6"
    assert again.err().count(f"metrics.jsonl lacks the lines of these steps: {missing}\n") == 1, again.err()


def test_a_resume_does_not_need_the_first_weights_any_more(train, tmp_path):
    first, run_dir = tmp_path / "first", tmp_path / "run"
    assert train(first, "train.steps=4", nproc=1).wait() == 0
    init_from = f"model.init_from={training.checkpoints(first)[0]}"
    assert train(run_dir, init_from, "train.steps=8", nproc=1).wait() == 0
    training.checkpoints(first)[0].rename(tmp_path / "away")
    again = train(run_dir, init_from, "train.steps=12", nproc=1)
    assert again.wait() == 0, again.err()
    assert "resumed from step-00000008" in again.out()
    assert training.last_step(run_dir) == 12


@pytest.mark.parametrize("key", ["model.init_from", "checkpoint.resume"])
def test_a_folder_of_checkpoints_names_the_newest(train, tmp_path, key):
    first, run_dir = tmp_path / "first", tmp_path / "run"
    assert train(first, "train.steps=8", nproc=1).wait() == 0
    newest = training.checkpoints(first)[-1]
    for given in (first, f"{first}/ckpt/"):
        run = train(run_dir, f"{key}={given}", nproc=1)
        assert run.wait() == 2, run.err()
        assert f"{key}={given}: holds checkpoints" in run.err()
        assert f"the newest is {newest}" in run.err()


def test_the_first_weights_are_named(train, tmp_path):
    first, run_dir = tmp_path / "first", tmp_path / "run"
    assert train(first, "train.steps=4", nproc=1).wait() == 0
    given = training.checkpoints(first)[-1]
    run = train(run_dir, f"model.init_from={given}", "train.steps=2")
    assert run.wait() == 0, run.err()
    assert re.findall(r"weights from .*", run.out()) == [f"weights from {given.name}"]


@pytest.mark.thorough
def test_a_restart_does_not_need_the_given_checkpoint_any_more(train, tmp_path, wait_for):
    first, run_dir = tmp_path / "first", tmp_path / "run"
    assert train(first, "train.steps=4", nproc=1).wait() == 0
    given = training.checkpoints(first)[-1]
    run = train(run_dir, LONG, f"checkpoint.resume={given}", options=["--max-restarts=1"])
    wait_for(lambda: training.checkpoints(run_dir))
    given.rename(tmp_path / "away")
    os.kill(training.workers(run.pid)[0], signal.SIGKILL)
    assert run.wait() == 0, run.err()
    assert training.last_step(run_dir) == 240


@pytest.mark.thorough
def test_resume_never_still_goes_on_after_a_kill(bin_dir, train, tmp_path, wait_for):
    run_dir, alone = tmp_path / "run", tmp_path / "alone"
    run = train(run_dir, LONG, "checkpoint.resume=never", options=["--max-restarts=1"])
    wait_for(lambda: training.checkpoints(run_dir))
    os.kill(training.workers(run.pid)[0], signal.SIGKILL)
    assert run.wait() == 0, run.err()
    assert "resumed from" in run.out()
    assert train(alone, LONG, nproc=1).wait() == 0
    assert training.loss_column(run_dir) == training.loss_column(alone)
    hashes = {training.state_hash(bin_dir, d, step=240) for d in (run_dir, alone)}
    assert len(hashes) == 1


@pytest.mark.parametrize("prompt", ["hello"])
def test_prompt_beyond_the_vocabulary_is_refused(train, tmp_path, prompt):
    run = train(tmp_path / "run", "model.vocab=64", "data.format=u16", "sample.every=5",
                f"sample.prompt={prompt}")
    assert run.wait() == 2, run.err()
    assert "sample.prompt" in run.err()


def test_a_vocabulary_larger_than_bytes_warns_and_samples_bytes_only(train, tmp_path):
    """Untrained logits of 2000 tokens: nearly every draw would be one that is no byte."""
    run = train(tmp_path / "run", "model.vocab=2000", "train.steps=1", "sample.every=1",
                "sample.tokens=100", "sample.top_k=0")
    assert run.wait() == 0, run.err()
    assert run.err().count("model.vocab=256") == 1, run.err()
    text = run.out().split("--- sample at step 1 ---\n")[1].removesuffix("\n---\n")
    sampled = re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), text.encode())
    assert len(sampled) == len("\n") + 100  # a token past 255 would be more digits


@pytest.mark.thorough
def test_sigterm_to_a_lone_worker_saves_whatever_it_computes(bin_dir, start, corpus, tmp_path, wait_for):
    """Matrix products run on borrowed stack registers: a signal must not be handled there."""
    big = ["model.dim=256", "model.layers=2", "model.heads=4", "train.steps=100000"]
    for attempt in range(5):
        run_dir = tmp_path / f"run{attempt}"
        worker = start(bin_dir / "ctrun-worker", *training.overrides(corpus, run_dir, *big))
        wait_for(lambda: training.last_step(run_dir) >= 2 + attempt)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 83, worker.err()
        assert "saved" in worker.out()
        assert training.step_of(training.checkpoints(run_dir)[-1]) == training.last_step(run_dir)


def test_runs_that_share_a_folder_of_checkpoints_come_one_after_the_other(train, tmp_path, wait_for):
    shared = f"checkpoint.dir={tmp_path}/shared"
    first = train(tmp_path / "a", shared, "run.name=a", "train.steps=100000")
    wait_for(lambda: training.last_step(tmp_path / "a") >= 6)
    second = train(tmp_path / "b", shared, "run.name=b", options=["--max-restarts=3"])
    assert second.wait() == 2, second.err()
    lines = second.err().splitlines()
    assert len(lines) == 1 and "checkpoint.dir" in lines[0] and "in use by" in lines[0], lines
    first.signal(signal.SIGTERM)
    assert first.wait() == 128 + signal.SIGTERM, first.err()
    saved = training.last_step(tmp_path / "a")
    third = train(tmp_path / "b", shared, "run.name=b", f"train.steps={saved + 3}")
    assert third.wait() == 0, third.err()
    assert f"step {saved} of {saved + 3}; the checkpoint is of run \"a\"\n" in third.out()
    again = train(tmp_path / "b", shared, "run.name=b", f"train.steps={saved + 5}")
    assert again.wait() == 0, again.err()
    assert "resumed" in again.out() and "of run" not in again.out()
