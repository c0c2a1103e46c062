"""Bad input: one clear line with cause and remedy, exit 2, once, without using a restart."""

import os
import socket

import pytest
import training


def write_u16(path, values):
    path.write_bytes(b"".join(v.to_bytes(2, "little") for v in values))


def make_files(folder):
    (folder / "empty.txt").write_text("")
    (folder / "short.txt").write_text("abc")
    (folder / "little.txt").write_text("a" * 40)  # one sample of 32 + 1
    (folder / "empty").mkdir()
    (folder / "text.bin").write_text("words of a text " * 100)
    write_u16(folder / "small.bin", [5] * 4000)
    write_u16(folder / "big.bin", [5] * 100 + [300] + [5] * 4000)
    header = [20240520, 1, 5000] + [0] * 253
    (folder / "cut.bin").write_bytes(
        b"".join(v.to_bytes(4, "little") for v in header) + b"\1\0" * 100
    )
    (folder / "bad.yaml").write_text("model:\n  dim: 32\noptim:\n  learning_rate: 1\n")
    (folder / "type.yaml").write_text("log:\n  every: many\n")


CASES = {
    "unknown key": (["optim.wamup=1"], ["optim.wamup", "nearest", "optim.warmup"]),
    "unknown key in a file": (
        ["--config-path={tmp}", "--config-name=bad"], ["bad.yaml:4:3", "learning_rate", "optim.lr"]
    ),
    "wrong type in a file": (["--config-path={tmp}", "--config-name=type"], ["type.yaml:2:10", "log.every"]),
    "wrong type": (["train.steps=many"], ["train.steps", "many"]),
    "out of range": (["model.layers=0"], ["model.layers"]),
    "heads do not divide dim": (["model.heads=3"], ["model.dim", "model.heads", "32", "3"]),
    "micro_batch does not divide global_batch": (["train.micro_batch=3"], ["global_batch", "micro_batch"]),
    "more ranks than leaves": (["train.micro_batch=8"], ["2 ranks", "global_batch"]),
    "no such data": (["data.train=[{tmp}/nowhere.txt]"], ["nowhere.txt"]),
    "empty data": (["data.train=[{tmp}/empty.txt]"], ["empty.txt"]),
    "empty folder": (["data.train=[{tmp}/empty]"], ["empty"]),
    "data too short": (["data.train=[{tmp}/short.txt]"], ["short.txt"]),
    "token beyond the vocabulary": (["data.train=[{tmp}/big.bin]"], ["big.bin", "300", "200"]),
    "data file cut short": (["data.train=[{tmp}/cut.bin]"], ["cut.bin", "5000"]),
    "cuda where there is none": (["device.kind=cuda"], ["device.kind", "cuda", "cpu"]),
    "texts of tokens that are no bytes": (
        ["data.train=[{tmp}/small.bin]", "model.vocab=50257", "sample.every=5"],
        ["sample.every=5", "data.tokenizer=bytes", "sample.every=0"],
    ),
    "text that its name calls tokens": (
        ["data.train=[{tmp}/text.bin]"], ["text.bin", "its name", "data.format=text"]
    ),
    "null": (["train.steps=null"], ["train.steps", "null", "default"]),
    "file for a folder": (["--config-path={tmp}/bad.yaml"], ["bad.yaml is a file", "--config-name"]),
    "folder without a file": (["--config-path={tmp}"], ["--config-name=NAME"]),
    "not there yet": (["parallel.pp=2"], ["parallel.pp", "1"]),
    "data.val too small to evaluate": (
        ["data.val=[{tmp}/little.txt]"], ["data.val", "1 samples", "train.micro_batch", "2"]
    ),
    "file for a checkpoint": (
        ["checkpoint.resume={tmp}/short.txt"], ["short.txt", "not the folder of a checkpoint"]
    ),
    "unusable checkpoint": (["checkpoint.resume={tmp}/nothing"], ["nothing", "No such file"]),
    "unusable first weights": (
        ["model.init_from={tmp}/short.txt"], ["short.txt", "neither an llm.c model file nor a checkpoint"]
    ),
    "no such first weights": (["model.init_from={tmp}/nothing"], ["nothing", "No such file"]),
    "folder without a checkpoint": (["checkpoint.resume={tmp}/empty"], ["empty", "no checkpoint"]),
    "name that is a path": (["run.name=../x"], ["run.name"]),
    "file for a run directory": (
        ["run.dir={tmp}/short.txt"], ["run.dir=", "short.txt is a file", "another run.dir"]
    ),
    "run directory that cannot be made": (["run.dir=/proc/run"], ["/proc/run"]),
}


@pytest.mark.parametrize("key", ["model.init_from", "checkpoint.resume"])
@pytest.mark.parametrize("dry", [["--dry-run"], []], ids=["dry", "wet"])
def test_weights_that_are_not_there_leave_nothing_behind(train, tmp_path, key, dry):
    run = train(tmp_path / "run", f"{key}={tmp_path}/nothing", *dry, nproc=1)
    assert run.wait() == 2, run.err()
    assert f"{key}={tmp_path}/nothing: No such file" in run.err()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", CASES)
def test_worker_refuses(train, tmp_path, case):
    arguments, expected = CASES[case]
    make_files(tmp_path)
    run = train(
        tmp_path / "run", *(a.format(tmp=tmp_path) for a in arguments),
        options=["--max-restarts=3"],
    )
    assert run.wait() == 2, run.err()
    lines = [line for line in run.err().splitlines() if line.strip()]
    assert len(lines) == 1, run.err()
    for text in expected:
        assert text in lines[0], lines[0]
    assert "restarting" not in run.err()


def test_run_directory_in_use_names_the_holder(train, tmp_path, wait_for):
    run_dir = tmp_path / "run"
    first = train(run_dir, "train.steps=100000", options=["--rdzv-id=first"])
    wait_for(lambda: training.last_step(run_dir) >= 2)
    second = train(run_dir, options=["--rdzv-id=second", "--max-restarts=3"])
    assert second.wait() == 2, second.err()
    assert "in use" in second.err() and "first" in second.err()
    assert first.popen.poll() is None


def test_run_directory_that_is_not_shared(train, tmp_path, two_hosts):
    """The second node has another file system at the same path."""
    run_dir = tmp_path / "run"
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    run_dir.mkdir()
    options = ["--nnodes=2", "--rdzv-id=x", f"--rdzv-endpoint={two_hosts[0][1]}:29418"]
    enter = ["ip", "netns", "exec"]
    mount = ["unshare", "-m", "sh", "-c", f'mount --bind {hidden} {run_dir} && exec "$@"', "sh"]
    first = train(run_dir, nproc=1, options=options, prefix=[*enter, two_hosts[0][0]])
    second = train(run_dir, nproc=1, options=options, prefix=[*enter, two_hosts[1][0], *mount])
    assert first.wait() == 2, first.err()
    assert second.wait() == 2, second.err()
    assert "does not see" in first.err() + second.err()


def test_nodes_with_other_configurations_name_the_key(train, tmp_path, free_port):
    options = ["--nnodes=2", "--rdzv-id=x", f"--rdzv-endpoint=127.0.0.1:{free_port}"]
    nodes = [train(tmp_path / "run", f"train.seed={seed}", nproc=1, options=options)
             for seed in (1, 2)]
    for node in nodes:
        assert node.wait() == 2, node.err()
        assert "train.seed" in node.err()


def test_metrics_that_are_no_file(train, tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    os.mkfifo(run_dir / "metrics.jsonl")
    run = train(run_dir, options=["--max-restarts=2"])
    assert run.wait() == 2, run.err()
    assert "metrics.jsonl" in run.err() and "restarting" not in run.err()


def test_proc_of_another_pid_namespace_is_refused_with_the_remedy(train, tmp_path):
    run = train(tmp_path / "run", prefix=["unshare", "-pf"], options=["--max-restarts=2"])
    assert run.wait() == 2, run.err()
    assert "--mount-proc" in run.err() and "restarting" not in run.err()


def test_run_directory_moved_while_training_gets_no_checkpoint_elsewhere(
    train, tmp_path, wait_for
):
    run_dir = tmp_path / "run"
    run = train(run_dir, "train.steps=400")
    wait_for(lambda: training.last_step(run_dir) >= 9)
    run_dir.rename(tmp_path / "moved")
    assert run.wait() == 82, run.err()
    assert "moved or replaced" in run.err()


def test_data_changed_since_the_checkpoint(train, tmp_path, corpus):
    data = tmp_path / "data.txt"
    data.write_text((corpus / "a.txt").read_text())
    run_dir = tmp_path / "run"
    run = train(run_dir, f"data.train=[{data}]", "train.steps=5")
    assert run.wait() == 0, run.err()
    data.write_text((corpus / "a.txt").read_text() + "more")
    again = train(run_dir, f"data.train=[{data}]", "train.steps=9", options=["--max-restarts=2"])
    assert again.wait() == 2, again.err()
    assert "have changed" in again.err() and "restarting" not in again.err()


def test_data_cut_while_training_is_refused_naming_file_and_offset(train, tmp_path, corpus, wait_for):
    data = tmp_path / "data.txt"
    data.write_text((corpus / "a.txt").read_text())
    run = train(tmp_path / "run", f"data.train=[{data}]", "train.steps=100000",
                "checkpoint.every=0", options=["--max-restarts=2"])
    wait_for(lambda: training.last_step(tmp_path / "run") >= 2)
    os.truncate(data, 100)
    assert run.wait() == 2, run.err()
    assert "data.txt" in run.err() and "restarting" not in run.err()


def test_other_model_than_the_checkpoint(train, tmp_path):
    run_dir = tmp_path / "run"
    assert train(run_dir, "train.steps=5").wait() == 0
    again = train(run_dir, "train.steps=9", "model.layers=1", options=["--max-restarts=2"])
    assert again.wait() == 2, again.err()
    assert "another model" in again.err()


def test_finished_run_says_so_and_ends_well(train, tmp_path):
    run_dir = tmp_path / "run"
    assert train(run_dir, "train.steps=5").wait() == 0
    again = train(run_dir, "train.steps=5")
    assert again.wait() == 0, again.err()
    assert "finished" in again.out()


def test_port_taken_names_the_holder(start, bin_dir, free_port):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", free_port))
        holder.listen()
        run = start(bin_dir / "ctrun", "--nnodes=1:2", f"--rdzv-endpoint=127.0.0.1:{free_port}",
                    "--rdzv-id=x", "--no-python", "/bin/true")
        assert run.wait() == 2, run.err()
    assert str(free_port) in run.err() and f"{os.getpid()}" in run.err()


def test_workers_without_a_launcher_refuse_to_be_many(start, bin_dir):
    environment = {**os.environ, "WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0",
                   "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "MASTER_PORT": "1"}
    run = start(bin_dir / "ctrun-worker", env=environment)
    assert run.wait() == 2
    assert "ctrun" in run.err()


def test_what_the_run_writes_never_becomes_its_data(bin_dir, start, corpus, tmp_path):
    """A run below its own data folder is started twice: the second finds the same data."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "a.txt").write_text((corpus / "a.txt").read_text())
    for steps in (5, 9):
        run = start(bin_dir / "ctrun-worker",
                    *training.overrides(corpus, "runs/x", "data.train=[.]", f"train.steps={steps}"),
                    cwd=folder)
        assert run.wait() == 0, run.err()
    assert training.last_step(folder / "runs/x") == 9
    named = start(bin_dir / "ctrun-worker",
                  *training.overrides(corpus, "runs/x", "data.train=[runs/x/metrics.jsonl]"),
                  cwd=folder)
    assert named.wait() == 2 and "run.dir" in named.err(), named.err()
