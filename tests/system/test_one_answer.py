"""With the same global batch: byte-identical losses and the same state_hash everywhere."""

import os

import pytest
import training

pytestmark = pytest.mark.threads


@pytest.mark.parametrize("sampler", [
    "permute", pytest.param("torch", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("nproc,threads", [(1, 2), (2, 1), (3, 1), (4, 1)])
def test_any_number_of_ranks_and_threads(
    bin_dir, train, golden, tmp_path, sampler, nproc, threads
):
    run_dir = tmp_path / "run"
    run = train(
        run_dir, f"data.sampler={sampler}", f"device.threads={threads}", nproc=nproc
    )
    assert run.wait() == 0, run.err()
    training.assert_same_answer(bin_dir, run_dir, golden(sampler))


@pytest.mark.parametrize("what", ["block", "selective"])
@pytest.mark.parametrize("nproc", [1, 3])
def test_activation_checkpointing(bin_dir, train, golden, tmp_path, nproc, what):
    run_dir = tmp_path / "run"
    run = train(run_dir, f"train.activation_checkpointing={what}", nproc=nproc)
    assert run.wait() == 0, run.err()
    training.assert_same_answer(bin_dir, run_dir, golden())


@pytest.mark.parametrize("kind", ["tcp", "shm"])
def test_any_transport(bin_dir, train, golden, tmp_path, kind):
    run_dir = tmp_path / "run"
    run = train(run_dir, f"comm.kind={kind}", "parallel.bucket_cap_mb=0.05")
    assert run.wait() == 0, run.err()
    training.assert_same_answer(bin_dir, run_dir, golden())


@pytest.mark.parametrize(
    "nprocs,sampler",
    [((1, 1), "permute"), ((2, 2), "permute"), ((1, 2), "permute"), ((1, 2), "torch")],
)
def test_two_nodes(bin_dir, train, golden, tmp_path, two_hosts, nprocs, sampler):
    run_dir = tmp_path / "run"
    address = two_hosts[0][1]
    nodes = [
        train(
            run_dir, f"data.sampler={sampler}", nproc=nproc, prefix=["ip", "netns", "exec", name],
            options=["--nnodes=2", "--rdzv-id=two", f"--rdzv-endpoint={address}:29417"],
        )
        for (name, _), nproc in zip(two_hosts, nprocs)
    ]
    for node in nodes:
        assert node.wait() == 0, node.err()
    training.assert_same_answer(bin_dir, run_dir, golden(sampler))


@pytest.mark.thorough
def test_nodes_with_other_processors_use_what_all_have(
    bin_dir, train, tmp_path, corpus, free_port
):
    """One node is told to have no vector unit: both compute as a run that has none."""
    alone, both = tmp_path / "alone", tmp_path / "both"
    options = ["--nnodes=2", "--rdzv-id=isa", f"--rdzv-endpoint=127.0.0.1:{free_port}"]
    old = {**os.environ, "CTRUN_ISA": "scalar"}
    nodes = [train(both, nproc=1, options=options, **more) for more in ({}, {"env": old})]
    golden = train(alone, nproc=1, env=old)
    for node in [*nodes, golden]:
        assert node.wait() == 0, node.err()
    assert training.loss_column(both) == training.loss_column(alone)
    assert training.state_hash(bin_dir, both) == training.state_hash(bin_dir, alone)
    assert any("processors differ: all use scalar" in node.err() for node in nodes)


def test_fast_reduction_is_close(bin_dir, train, golden, tmp_path):
    run_dir = tmp_path / "run"
    run = train(run_dir, "train.reduction=fast")
    assert run.wait() == 0, run.err()
    losses = [float(x) for x in training.loss_column(run_dir)]
    assert losses == pytest.approx([float(x) for x in golden()["losses"]], rel=1e-4)
