"""Our speed beside the peer's, or beside what the machine can do, measured in one run.

    bench.py [--quick] [--json FILE] [NAME…]      or: make bench BENCH='[--quick] [NAME…]'

Each line of the table is one comparison: ours; theirs; ours / theirs, with an arrow that says
whether a smaller (↓) or a larger (↑) ratio is the better one; the goal, of the ratio or (with
a unit) of our figure alone, and whether it is reached (✓ ✗; – where there is none); how the figures were taken; and the
benchmark's name. What is being measured is said meanwhile on stderr. The JSON has the same,
with the commands of both sides.

Figures of a busy machine are noisy, ratios less so: both sides are measured in turns, and
medians or bests of several compared. A goal that is missed once is a reason to run that line
again; the exit code says only whether everything could be measured. Programs come from $BIN,
PyTorch from $CTRUN_TORCH_PYTHON, llm.c's train_gpt2 (optional) from $CTRUN_LLMC. Only tcp
and half of dp, which make network namespaces, need root. On two cores expect an hour or more for
all, most of it steps of PyTorch and torch.compile, and some minutes with --quick; a busy machine
takes several times as long.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import elastic  # noqa: E402
import keeping  # noqa: E402
import launching  # noqa: E402
import networking  # noqa: E402
import saving  # noqa: E402
import sharding  # noqa: E402
import storing  # noqa: E402
import strategies  # noqa: E402
import talking  # noqa: E402
import training  # noqa: E402
from measure import ROOT, Context, Failed, Gap  # noqa: E402

BENCHES = {
    "start": launching.start,
    "workers": launching.workers,
    "agents": launching.agents,
    "crowd": launching.crowd,
    "memory": launching.agent,
    "restart": launching.restart,
    "elastic": elastic.elastic,
    "output": talking.output,
    "store": storing.store,
    "relays": keeping.relays,
    "keys": keeping.keys,
    "registered": keeping.registered,
    "all-reduce": training.all_reduce,
    "tcp": networking.tcp,
    "checkpoint": saving.checkpoint,
    "pause": saving.pause,
    "worker-memory": training.worker_memory,
    "exact": training.exact,
    "reduction": training.reduction,
    "scaling": training.scaling,
    "dp": strategies.dp,
    "llmc": training.llmc,
    "step": training.step,
    "fsdp": sharding.fsdp,
    "hsdp": sharding.hsdp,
    "overlap": sharding.overlap,
}
SCALES = {
    "s": ((1, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")),
    "bytes/s": ((1e9, "GB/s"), (1e6, "MB/s")),
    "1/s": ((1e3, "k/s"), (1, "/s")),
    "share": ((1e-2, "%"),),
    "1": ((1, "×"),),
}
LINE = "{:57} {:>9}  {:22} {:>9}  {:>8} {:>12}  {:28} {}"


def figure(value, unit):
    scale, name = next((s for s in SCALES[unit] if value >= s[0]), SCALES[unit][-1])
    return f"{value / scale:.3g} {name}" if value / scale < 1000 else f"{value / scale:.0f} {name}"


def goal_of(row):
    """What is to be reached, the ratio or our figure alone, and whether it is."""
    if row.reached is None:
        return "–"
    wanted = figure(row.limit, row.unit) if row.limit is not None else f"{row.goal:.3g}"
    return f"{'≤' if row.better == 'lower' else '≥'} {wanted} {'✓' if row.reached else '✗'}"


def line_of(row, name):
    arrow = "↓" if row.better == "lower" else "↑"
    ratio = f"{row.ratio:.3g} {arrow}" if row.ratio is not None else "–"
    theirs = figure(row.theirs, row.unit) if row.ratio is not None else ""
    return LINE.format(row.what, figure(row.ours, row.unit), row.against, theirs, ratio,
                       goal_of(row), row.how, name)


def interpreter_with_torch():
    python = os.environ.get("CTRUN_TORCH_PYTHON", "")
    if not python or not shutil.which(python):
        return None
    code = "import sys, importlib.util; sys.exit(not importlib.util.find_spec('torch'))"
    found = subprocess.run([python, "-c", code], capture_output=True, check=False)
    return python if found.returncode == 0 else None


def machine():
    models = {line.split(":", 1)[1].strip()
              for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")}
    return {
        "processor": ", ".join(sorted(models)) or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load_average": os.getloadavg()[0],
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def run_benches(names, ctx):
    """Prints each line when it is there. The results, and what could not be had."""
    results, gaps = [], []
    for i, name in enumerate(names):
        ctx.note(f"{name}, {i + 1} of {len(names)}")
        try:
            for item in BENCHES[name](ctx):
                if isinstance(item, Gap):
                    print(f"{item.what}: left out: {item.reason}", flush=True)
                    gaps.append({"bench": name, "failed": False, **dataclasses.asdict(item)})
                    continue
                print(line_of(item, name), flush=True)
                results.append({"bench": name, **dataclasses.asdict(item), "ratio": item.ratio,
                                "reached": item.reached, "command": f"make bench BENCH={name}"})
        except (Failed, OSError) as e:
            print(f"{name}: failed: {e}", flush=True)
            gaps.append({"bench": name, "failed": True, "what": name, "reason": str(e)})
    return results, gaps


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in BENCHES]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    return args


def print_summary(results, gaps):
    goals = [row for row in results if row["reached"] is not None]
    missed = [row for row in goals if not row["reached"]]
    print(f"{len(goals) - len(missed)} of {len(goals)} goals reached; "
          f"{len(gaps)} lines left out or failed")
    for row in missed:
        against = f", against {row['against']}" if row["against"] else ""
        print(f"  missed: {row['what']}{against}; {row['command']}")


def main():
    args = parse_args()
    folder = pathlib.Path(os.environ.get("BIN", ROOT / "build/release/bin")).resolve()
    if not (folder / "bench-store").exists():
        sys.exit(f"bench: {folder} has no benchmark programs: run it by make bench")
    for number in (signal.SIGINT, signal.SIGTERM):  # what was started is ended on the way out
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    about = machine()
    print(f"{about['processor']}, {about['cores']} cores; load {about['load_average']:.1f}")
    print(LINE.format("", "ours", "against", "theirs", "ratio", "goal", "", "make bench BENCH="))
    names = [name for name in BENCHES if not args.names or name in args.names]
    # beside the programs, since the disk is measured and /tmp may be memory
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder.parent) as scratch:
        ctx = Context(folder, interpreter_with_torch(), args.quick, pathlib.Path(scratch))
        results, gaps = run_benches(names, ctx)
    print_summary(results, gaps)
    if args.json:
        text = json.dumps({"machine": about, "quick": args.quick, "results": results,
                           "left_out": gaps}, indent=1, ensure_ascii=False)
        args.json.write_text(text + "\n")
    return 1 if any(gap["failed"] for gap in gaps) else 0


if __name__ == "__main__":
    sys.exit(main())
