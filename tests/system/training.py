"""Small training runs for the system tests: a corpus, a model of seconds, what came out."""

import json
import os
import pathlib
import random
import re
import subprocess

SOAK = bool(os.environ.get("CTRUN_SOAK"))
STEPS = 40
PATIENCE = 300  # seconds until a test gives up; a crowded machine may be ten times slower

MODEL = [
    "model.layers=2", "model.heads=2", "model.dim=32", "model.context=32", "model.vocab=256",
]
TRAIN = [
    f"train.steps={STEPS}", "train.micro_batch=2", "train.global_batch=8", "train.seed=7",
    "optim.lr=1e-3", "optim.min_lr=1e-4", "optim.warmup=5", "eval.every=10",
    "eval.batches=4", "checkpoint.every=4", "checkpoint.keep=3", "sample.every=0",
    "comm.timeout=60",
]


def write_corpus(folder):
    """Two training files and a validation file of made-up words; the same on every call."""
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 7)))
             for _ in range(200)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, n in (("a.txt", 4000), ("b.txt", 2000), ("val.txt", 1500)):
        text = " ".join(generator.choice(words) for _ in range(n))
        (folder / name).write_text(text)
    return folder


def overrides(corpus, run_dir, *extra):
    return [
        *MODEL, *TRAIN, f"data.train=[{corpus}/a.txt,{corpus}/b.txt]",
        f"data.val=[{corpus}/val.txt]", f"run.dir={run_dir}", *extra,
    ]


def metrics(run_dir):
    path = pathlib.Path(run_dir) / "metrics.jsonl"
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]  # the last may be half written


def last_step(run_dir):
    lines = metrics(run_dir)
    return lines[-1]["step"] if lines else 0


def loss_column(run_dir):
    """The text of each loss, so that equal means equal bits."""
    text = (pathlib.Path(run_dir) / "metrics.jsonl").read_text()
    return re.findall(r'"loss":([^,]+),', text)


def checkpoints(run_dir):
    folder = pathlib.Path(run_dir) / "ckpt"
    if not folder.exists():
        return []
    found = [p for p in folder.iterdir() if re.fullmatch(r"step-\d{8}-g\d+", p.name)]
    return sorted(found, key=lambda p: [int(n) for n in re.findall(r"\d+", p.name)][::-1])


def step_of(checkpoint):
    return int(checkpoint.name.split("-")[1])


def state_hash(bin_dir, run_dir, step=STEPS):
    path = [p for p in checkpoints(run_dir) if p.name.startswith(f"step-{step:08d}-")][-1]
    out = subprocess.run(
        [bin_dir / "ctrun", "ckpt", "show", "--json", path], check=True, capture_output=True
    )
    shown = json.loads(out.stdout)
    assert shown["step"] == step
    return shown["state_hash"]


def children(pid):
    try:
        return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def workers(agent_pid):
    """The pids of an agent's workers: the children of its keeper."""
    return [w for keeper in children(agent_pid) for w in children(keeper)]


def processes_of(run_dir):
    """Every live process whose command line names the run directory."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if f"run.dir={run_dir}" in command and state != "Z":
            found.append(int(entry.name))
    return found


def assert_nothing_left(run_dir, shm_before):
    run_dir = pathlib.Path(run_dir)
    assert processes_of(run_dir) == []
    assert set(os.listdir("/dev/shm")) <= set(shm_before)
    left = [p.name for p in (run_dir / "ckpt").iterdir()]
    assert all(re.fullmatch(r"step-\d{8}-g\d+", name) for name in left), left
    assert not list(run_dir.glob("metrics.jsonl.*")), "a temporary of the metrics is left"


def assert_same_answer(bin_dir, run_dir, golden):
    assert [line["step"] for line in metrics(run_dir)] == list(range(1, STEPS + 1))
    assert loss_column(run_dir) == golden["losses"]
    assert state_hash(bin_dir, run_dir) == golden["hash"]
