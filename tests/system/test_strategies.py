"""Whatever is cut into shards, and over however many ranks: byte-identical losses, norms and
texts, and the same state at the end."""

import os
import re
import signal
import struct

import pytest
import training

pytestmark = pytest.mark.threads

STEPS = 8
LONG = 240  # steps enough to do something to a run before it ends
COLUMNS = ("loss", "grad_norm", "val_loss")
COMMON = [
    f"train.steps={STEPS}", "model.layers=3", "optim.warmup=2", "eval.every=3", "eval.batches=5",
    "sample.every=4", "sample.tokens=5", "log.curve=false",
]
SHARDED = ["checkpoint.every=0", "checkpoint.resume=never"]  # one at the end


def columns(run_dir):
    text = (run_dir / "metrics.jsonl").read_text()
    return {name: re.findall(rf'"{name}":([^,}}]+)', text) for name in COLUMNS}


def texts(run):
    return re.findall(r"^--- sample at step .*?^---$", run.out(), re.M | re.S)


@pytest.fixture(scope="module")
def answer(bin_dir):
    """What a run has come to."""
    return lambda run_dir, run: (
        columns(run_dir), texts(run), training.state_hash(bin_dir, run_dir, STEPS))


@pytest.fixture(scope="module")
def alone(train_in, answer):
    """ddp on one rank, by the number of samples in a step and what is rounded."""
    known = {}

    def answer_to(global_batch, *extra):
        key = global_batch, *extra
        if key not in known:
            known[key] = answer(
                *train_in(*COMMON, f"train.global_batch={global_batch}", *extra, nproc=1))
            assert len(known[key][0]["loss"]) == STEPS
            assert len(known[key][1]) == 2
        return known[key]

    return answer_to


CASES = [
    ("ddp", 3, []), ("fsdp", 1, []),
    *((strategy, nproc, []) for strategy in ("zero1", "zero2", "fsdp") for nproc in (2, 3, 4)),
    ("fsdp", 2, ["parallel.reshard_after_forward=false"]),
    ("fsdp", 3, ["parallel.prefetch=0", "parallel.blocks_per_unit=2"]),
    ("fsdp", 2, ["parallel.prefetch=3", "parallel.min_unit_params=1000000"]),
    ("fsdp", 4, ["parallel.reshard_after_forward=2"]),
    ("fsdp", 4, ["parallel.reshard_after_forward=2", "parallel.prefetch=0"]),
    ("fsdp", 4, ["parallel.reshard_after_forward=4"]),
    ("fsdp", 3, ["parallel.reshard_after_forward=1"]),
    ("hsdp", 4, ["parallel.dp_shard=2"]),
    ("hsdp", 4, ["parallel.dp_replicate=2", "parallel.reshard_after_forward=false"]),
    ("hsdp", 3, []), ("dp", 1, []), ("dp", 2, []), ("dp", 3, []),
]


IN_SHORT = [("zero1", 2, []), ("zero2", 3, []), ("fsdp", 4, []), ("hsdp", 3, []), ("dp", 2, []),
            ("dp", 3, []), ("fsdp", 4, ["parallel.reshard_after_forward=2"])]


def thorough_unless(short, *values, **kwargs):
    return pytest.param(*values, marks=[] if short else pytest.mark.thorough, **kwargs)


@pytest.mark.parametrize("global_batch", [thorough_unless(False, 8, id="no rest"),
                                          thorough_unless(True, 22, id="uneven rounds")])
@pytest.mark.parametrize("strategy,nproc,extra", [
    thorough_unless((s, n, e) in IN_SHORT, s, n, e, id=f"{s}-{n}{''.join('-' + x for x in e)}")
    for s, n, e in CASES
])
def test_every_strategy_gives_the_same_answer(
    train_in, answer, alone, strategy, nproc, extra, global_batch
):
    run_dir, run = train_in(
        *COMMON, *SHARDED, f"train.global_batch={global_batch}", f"parallel.strategy={strategy}",
        *extra, nproc=nproc)
    assert answer(run_dir, run) == alone(global_batch)


@pytest.mark.parametrize("strategy", ["zero1", "dp"])
def test_an_evaluation_of_fewer_batches_than_ranks(train_in, alone, strategy):
    """A rank without a batch still has parameters to give."""
    run_dir, _ = train_in(*COMMON, *SHARDED, "eval.batches=1", "sample.every=0",
                          f"parallel.strategy={strategy}", nproc=3)
    assert columns(run_dir)["loss"] == alone(8)[0]["loss"]


ROUNDED = {
    "bf16": ["train.precision=bf16"],
    "bf16 gradients": ["train.precision=bf16", "parallel.reduce_dtype=bf16"],
    "fp16": ["train.precision=fp16", "parallel.reduce_dtype=fp16"],
    "dropout": ["train.precision=bf16", "model.dropout=0.1"],
}


ROUNDING_CASES = [
    ("bf16 gradients", "fsdp", 3, []),
    *(("bf16 gradients", s, n, e) for s, n, e in CASES if n < 4 and (s, n, e) != ("fsdp", 3, [])),
    ("bf16", "ddp", 2, []), ("bf16", "zero1", 2, []), ("bf16", "zero2", 3, []),
    ("bf16", "hsdp", 4, ["parallel.dp_shard=2"]),
    ("bf16", "fsdp", 4, ["parallel.reshard_after_forward=2"]),
    ("bf16 gradients", "hsdp", 8, ["parallel.dp_shard=4", "parallel.reshard_after_forward=2"]),
    ("fp16", "fsdp", 6, ["parallel.reshard_after_forward=3", "parallel.prefetch=0"]),
    ("fp16", "ddp", 3, []), ("fp16", "zero1", 3, []), ("fp16", "fsdp", 2, []),
    ("dropout", "ddp", 1, ["train.activation_checkpointing=block"]),
    ("dropout", "fsdp", 2, ["train.activation_checkpointing=selective"]),
]


@pytest.mark.parametrize("rounded,strategy,nproc,extra", [
    pytest.param(*case, id="-".join(str(x) for x in (*case[:3], *case[3])))
    for case in (ROUNDING_CASES if training.SOAK else ROUNDING_CASES[:1])
])
def test_every_strategy_rounds_alike(train_in, answer, alone, rounded, strategy, nproc, extra):
    options = ROUNDED[rounded]
    run_dir, run = train_in(*COMMON, *SHARDED, "train.global_batch=22", *options,
                            f"parallel.strategy={strategy}", *extra, nproc=nproc)
    assert answer(run_dir, run) == alone(22, *options)
    fp32 = alone(22, *[x for x in options if x.startswith("model.")])[0]["loss"]
    losses = columns(run_dir)["loss"]
    assert losses[0] != fp32[0]
    assert [float(x) for x in losses] == pytest.approx([float(x) for x in fp32], rel=0.01)


def largest_shard(run_dir):
    """The fp32 words of the checkpoint's largest file."""
    path = max(training.checkpoints(run_dir)[-1].glob("*.safetensors"), key=lambda p: p.stat().st_size)
    data = path.read_bytes()
    body = data[8 + int.from_bytes(data[:8], "little"):]
    return [word for word, in struct.iter_unpack("<I", body)]


def test_a_run_changes_its_precision_from_one_start_to_the_next(train, tmp_path):
    run_dir = tmp_path / "run"
    before = train(run_dir, "train.steps=4", "train.precision=bf16", nproc=1)
    assert before.wait() == 0, before.err()
    kept = sum(word & 0xFFFF != 0 for word in largest_shard(run_dir))
    assert kept > 0.9 * len(largest_shard(run_dir)), "the checkpoint's weights are bf16 ones"
    after = train(run_dir, "train.steps=6", "parallel.strategy=fsdp", "parallel.reduce_dtype=bf16")
    assert after.wait() == 0, after.err()
    changed = re.search(r"changed since the checkpoint: (.*)", after.err())[1]
    assert {"train.precision", "parallel.reduce_dtype"} <= set(changed.split(", "))
    assert [line["step"] for line in training.metrics(run_dir)] == list(range(1, 7))


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "fsdp", "hsdp", "dp"])
def test_fast_reduction_is_close_in_every_strategy(train_in, alone, strategy):
    mesh = ["parallel.dp_shard=2"] if strategy == "hsdp" else []
    run_dir, _ = train_in(*COMMON, *SHARDED, "train.global_batch=22", "train.reduction=fast",
                          f"parallel.strategy={strategy}", *mesh, nproc=4)
    losses = [float(x) for x in columns(run_dir)["loss"]]
    assert losses == pytest.approx([float(x) for x in alone(22)[0]["loss"]], rel=1e-4)


def test_hsdp_shards_inside_the_node(bin_dir, train, tmp_path, two_hosts, alone):
    address = two_hosts[0][1]
    nodes = [
        train(tmp_path / "run", *COMMON, *SHARDED, "parallel.strategy=hsdp", nproc=2,
              prefix=["ip", "netns", "exec", name],
              options=["--nnodes=2", "--rdzv-id=hsdp", f"--rdzv-endpoint={address}:29418"])
        for name, _ in two_hosts
    ]
    for node in nodes:
        assert node.wait() == 0, node.err()
    assert columns(tmp_path / "run") == alone(8)[0]


@pytest.mark.parametrize("strategy", [
    thorough_unless(False, "zero1"), "fsdp", thorough_unless(False, "dp")])
def test_a_killed_rank_leaves_nobody_waiting(train, long_run, tmp_path, wait_for, strategy):
    """The others are in the midst of gathers and exchanges on several queues."""
    run_dir = tmp_path / "run"
    run = train(run_dir, *SHARDED, f"train.steps={LONG}", f"parallel.strategy={strategy}",
                nproc=3, options=["--max-restarts=1"])
    wait_for(lambda: training.last_step(run_dir) >= 5)
    os.kill(training.workers(run.pid)[1], signal.SIGKILL)
    assert run.wait() == 0, run.err()
    assert training.loss_column(run_dir) == long_run[0]


@pytest.mark.thorough
def test_dp_goes_on_after_its_owner_was_killed(bin_dir, train, long_run, tmp_path, wait_for):
    """Nobody else has anything of the state."""
    run_dir = tmp_path / "run"
    run = train(run_dir, f"train.steps={LONG}", "parallel.strategy=dp", nproc=3,
                options=["--max-restarts=1"])
    wait_for(lambda: training.checkpoints(run_dir))
    os.kill(training.workers(run.pid)[0], signal.SIGKILL)
    assert run.wait() == 0, run.err()
    assert "resumed from" in run.out()
    assert (training.loss_column(run_dir),
            training.state_hash(bin_dir, run_dir, step=LONG)) == long_run
    shards = list(training.checkpoints(run_dir)[0].glob("*.safetensors"))
    assert len(shards) == 1, "rank 0 alone writes"


@pytest.fixture(scope="module")
def long_run_in(bin_dir, train_in):
    """The losses and the final state of one rank, undisturbed, by precision."""
    known = {}

    def make(precision):
        if precision not in known:
            run_dir, _ = train_in(f"train.steps={LONG}", f"train.precision={precision}", nproc=1)
            known[precision] = (
                training.loss_column(run_dir), training.state_hash(bin_dir, run_dir, step=LONG))
        return known[precision]

    return make


@pytest.fixture(scope="module")
def long_run(long_run_in):
    return long_run_in("fp32")


# Each part of a run goes on from what the one before has saved.
CHAINS = {
    "ranks": [("fsdp", 1), ("fsdp", 4), ("fsdp", 3), ("fsdp", 1)],
    "strategies": [("ddp", 2), ("zero1", 3), ("zero2", 2), ("hsdp", 4), ("dp", 3), ("fsdp", 2),
                   ("dp", 2), ("ddp", 1)],
}


@pytest.mark.thorough
@pytest.mark.parametrize("chain", CHAINS)
def test_a_run_goes_on_in_any_other_layout(bin_dir, train, long_run, tmp_path, wait_for, chain):
    run_dir = tmp_path / "run"
    for i, (strategy, nproc) in enumerate(CHAINS[chain]):
        mesh = ["parallel.dp_shard=2"] if strategy == "hsdp" else []
        first = training.last_step(run_dir) + 1
        run = train(run_dir, f"train.steps={LONG}", f"parallel.strategy={strategy}", *mesh,
                    nproc=nproc)
        if i + 1 < len(CHAINS[chain]):
            target = max(first, LONG * (i + 1) // (len(CHAINS[chain]) + 1))
            wait_for(lambda: training.last_step(run_dir) >= target)
            run.signal(signal.SIGTERM)
            assert run.wait() == 128 + signal.SIGTERM, run.err()
        else:
            assert run.wait() == 0, run.err()
        assert i == 0 or "resumed from" in run.out()
    assert (training.loss_column(run_dir),
            training.state_hash(bin_dir, run_dir, step=LONG)) == long_run


@pytest.mark.parametrize("strategy,precision", [
    ("fsdp", "fp32"),
    *(thorough_unless(False, *case) for case in (
        ("fsdp", "bf16"), ("hsdp", "fp32"), ("dp", "fp32"),
        *([("zero2", "fp32"), *((s, "bf16") for s in ("ddp", "zero1", "zero2", "hsdp"))]
          if training.SOAK else []))),
])
def test_a_run_that_loses_two_of_four_ranks_ends_the_same_on_three(
    bin_dir, train, long_run_in, tmp_path, wait_for, strategy, precision, free_port
):
    run_dir = tmp_path / "run"
    options = ["--nnodes=1:2", "--rdzv-id=lost", f"--rdzv-endpoint=127.0.0.1:{free_port}",
               "--max-restarts=9"]
    extra = [f"train.steps={LONG}", f"parallel.strategy={strategy}",
             f"train.precision={precision}"]
    first = train(run_dir, *extra, options=options)
    second = train(run_dir, *extra, options=options)
    wait_for(lambda: training.last_step(run_dir) >= LONG // 8)
    second.kill_group()
    seen = training.last_step(run_dir)
    wait_for(lambda: training.last_step(run_dir) > seen)
    third = train(run_dir, *extra, nproc=1, options=options)
    for node in (first, third):
        assert node.wait() == 0, node.err()
    assert (training.loss_column(run_dir),
            training.state_hash(bin_dir, run_dir, step=LONG)) == long_run_in(precision)
    assert {m["world_size"] for m in training.metrics(run_dir)} >= {3}
    if strategy == "hsdp":  # a node of two ranks and one of one
        assert "have different numbers of ranks: one copy over all 3 (dp_shard=3)" in first.err()


@pytest.mark.parametrize("extra,words", [
    (["parallel.strategy=hsdp", "parallel.dp_shard=3", *SHARDED],
     ["parallel.dp_shard=3", "2 ranks", "auto"]),
    (["parallel.dp_shard=2"], ["parallel.dp_shard=2", "ddp", "hsdp"]),
    (["parallel.strategy=fsdp", "train.global_batch=2", *SHARDED], ["2 ranks", "at most 1 rank"]),
    (["parallel.strategy=fsdp", "parallel.reshard_after_forward=3", *SHARDED],
     ["parallel.reshard_after_forward=3", "2 ranks", "(1, 2)", "true"]),
], ids=["mesh", "axis", "ranks", "pieces"])
def test_what_cannot_be_is_refused_in_a_line(train, tmp_path, extra, words):
    run = train(tmp_path / "run", *extra, nproc=2)
    assert run.wait() == 2
    lines = [line for line in run.err().splitlines() if words[0] in line]
    assert lines and all(all(word in line for word in words) for line in lines), run.err()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.thorough
def test_an_elastic_job_keeps_pieces_while_they_come_out_even(train, tmp_path, wait_for, free_port):
    """4 ranks: pieces of 2; 2 ranks: they are all there are; 3 ranks: refused."""
    run_dir = tmp_path / "run"
    options = ["--nnodes=1:2", "--rdzv-id=even", f"--rdzv-endpoint=127.0.0.1:{free_port}",
               "--max-restarts=9"]
    extra = ["train.steps=100000", "parallel.strategy=fsdp", "parallel.reshard_after_forward=2"]

    def trains_on(n):
        return any(m["world_size"] == n for m in training.metrics(run_dir))

    first = train(run_dir, *extra, options=options)
    second = train(run_dir, *extra, options=options)
    wait_for(lambda: trains_on(4))
    second.kill_group()
    wait_for(lambda: trains_on(2))
    third = train(run_dir, *extra, nproc=1, options=options)
    for node in (first, third):
        assert node.wait() == 2, node.err()
        assert re.search(r"reshard_after_forward=2 does not divide the 3 ranks .*\(1, 3\)$",
                         node.err(), re.M), node.err()
    assert not trains_on(3)


@pytest.mark.thorough
@pytest.mark.parametrize("pieces", [2, 3])
def test_pieces_fit_the_mesh_that_all_nodes_make(train, tmp_path, alone, free_port, pieces):
    """Nodes of three ranks and one: a copy over four, which no node knows of alone."""
    run_dir = tmp_path / "run"
    options = ["--nnodes=2", "--rdzv-id=fit", f"--rdzv-endpoint=127.0.0.1:{free_port}"]
    nodes = [train(run_dir, *COMMON, *SHARDED, "parallel.strategy=hsdp",
                   f"parallel.reshard_after_forward={pieces}", nproc=n, options=options)
             for n in (3, 1)]
    for node in nodes:
        assert node.wait() == (0 if pieces == 2 else 2), node.err()
        assert pieces == 2 or "does not divide the 4 ranks of a copy" in node.err()
    assert pieces == 3 or columns(run_dir) == alone(8)[0]
