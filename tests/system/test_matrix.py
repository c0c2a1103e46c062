"""Every strategy, on 1, 2, 3, 4 and 8 ranks, in fp32 and bf16, whatever backward computes again, with
and without accumulation: the losses of one rank's run, byte for byte, and its state at the end."""

import itertools

import pytest
import training

STEPS = 3
SMALL = [f"train.steps={STEPS}", "eval.every=0", "checkpoint.every=0", "checkpoint.resume=never",
         "log.curve=false"]
MICRO_BATCH = 2  # training.TRAIN's
LEAVES = 11  # of a step that accumulates, unevenly, on any of the ranks

STRATEGIES = ("ddp", "zero1", "zero2", "fsdp", "hsdp", "dp")
RANKS = (1, 2, 3, 4, 8)
MESHES = {("hsdp", 4): ["2"], ("hsdp", 8): ["2", "4"], ("hsdp", 3): ["1", "auto"]}
CASES = [
    (strategy, nproc, dp_shard)
    for strategy, nproc in itertools.product(STRATEGIES, RANKS)
    for dp_shard in MESHES.get((strategy, nproc), ["auto"])
]


@pytest.fixture(scope="module")
def answer(bin_dir, train_in):
    """What a run has come to; `leaves` are the micro-batches of a step."""

    def train(nproc, leaves, *extra):
        run_dir, _ = train_in(
            *SMALL, f"train.global_batch={leaves * MICRO_BATCH}", *extra, nproc=nproc)
        losses = training.loss_column(run_dir)
        assert len(losses) == STEPS
        return losses, training.state_hash(bin_dir, run_dir, STEPS)

    return train


@pytest.fixture(scope="module")
def alone(answer):
    """On one rank, with ddp, and nothing computed again."""
    known = {}

    def answer_to(leaves, precision):
        if (leaves, precision) not in known:
            known[leaves, precision] = answer(1, leaves, f"train.precision={precision}")
        return known[leaves, precision]

    return answer_to


@pytest.mark.parametrize("strategy,nproc,dp_shard", [
    pytest.param(*case, id="-".join(map(str, case)))
    for case in (CASES if training.SOAK else [("fsdp", 2, "auto")])
])
def test_ranks_precision_recomputation_and_accumulation_change_no_bit(
    answer, alone, strategy, nproc, dp_shard
):
    options = [f"parallel.strategy={strategy}", f"parallel.dp_shard={dp_shard}"]
    members = itertools.product(
        (nproc, LEAVES), ("fp32", "bf16"), ("none", "block", "selective"))
    for leaves, precision, recompute in members if training.SOAK else [(LEAVES, "bf16", "block")]:
        got = answer(nproc, leaves, *options, f"train.precision={precision}",
                     f"train.activation_checkpointing={recompute}")
        assert got == alone(leaves, precision), (leaves, precision, recompute)
