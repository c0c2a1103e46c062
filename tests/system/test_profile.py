"""--profile writes a Chrome trace of each rank."""

import json

import pytest

pytestmark = pytest.mark.threads

STEPS = 12
ROWS = {"compute", "gather", "reduce", "copy", "step"}


def read(path):
    """What the queues did: row → events, each with the step that it belongs to."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = {name: [] for name in names.values()}
    for e in events:
        if e["ph"] == "X":
            rows[names[e["tid"]]].append(e)
    return rows


def begins(events, step, name):
    return [e["ts"] for e in events if e["args"]["step"] == step and e["name"] == name]


def overlaps_in(rows):
    """In how many steps a bucket went out before backward's last kernel."""
    assert set(rows) == ROWS
    assert [e["args"]["step"] for e in rows["step"]] == list(range(1, STEPS + 1))
    assert all(e["dur"] >= 0 for events in rows.values() for e in events)
    n = 0
    for step in range(1, STEPS + 1):
        compute, reduce = rows["compute"], rows["reduce"]
        assert begins(compute, step, "matmul") and begins(compute, step, "adamw")
        sent = begins(reduce, step, "all_to_all")
        assert sent and begins(reduce, step, "sum_ordered")
        n += min(sent) < max(begins(compute, step, "embedding_grad"))
    assert begins(rows["copy"], 4, "copy")  # the checkpoint's snapshot
    return n


def test_each_rank_tells_what_its_queues_did(train, tmp_path):
    """The queues' threads may get their turns late on a busy machine: not in every run."""
    for attempt in range(5):
        run = train(tmp_path / f"run{attempt}", f"train.steps={STEPS}",
                    "parallel.bucket_cap_mb=0.05", f"--profile={tmp_path}/trace{attempt}")
        assert run.wait() == 0, run.err()
        if sum([overlaps_in(read(tmp_path / f"trace{attempt}.rank{rank}")) for rank in range(2)]) > 0:
            return
    raise AssertionError("no bucket ever went out before backward was over")


def is_beside(event, others):
    begin, end = event["ts"], event["ts"] + event["dur"]
    return any(begin < e["ts"] + e["dur"] and e["ts"] < end for e in others)


@pytest.mark.parametrize("prefetch", [1, 0])
def test_fsdp_gathers_while_it_works_if_it_may_prefetch(train, tmp_path, prefetch):
    run = train(tmp_path / "run", "train.steps=8", "model.layers=6", "parallel.strategy=fsdp",
                f"parallel.prefetch={prefetch}", "checkpoint.every=0", "eval.every=0",
                f"--profile={tmp_path}/trace")
    assert run.wait() == 0, run.err()
    for rank in range(2):
        rows = read(tmp_path / f"trace.rank{rank}")
        gathers = [e for e in rows["gather"] if e["name"] == "all_gather"]
        assert gathers
        # of blocks and the head: the embedding has a buffer of its own
        work = [e for e in rows["compute"] if e["name"] == "matmul"]
        assert any(is_beside(e, work) for e in gathers) == (prefetch > 0)


def test_one_rank_writes_the_very_file(train, tmp_path):
    run = train(tmp_path / "run", "train.steps=2", f"--profile={tmp_path}/trace.json", nproc=1)
    assert run.wait() == 0, run.err()
    rows = read(tmp_path / "trace.json")
    assert [e["args"]["step"] for e in rows["step"]] == [1, 2]


def test_a_path_that_cannot_be_is_refused(train, tmp_path):
    run = train(tmp_path / "run", "train.steps=2", f"--profile={tmp_path}/no/trace")
    assert run.wait() == 2, run.err()
    assert f"--profile: {tmp_path}/no/trace" in run.err()
    assert not (tmp_path / "run").exists()
