"""What all benchmarks need: rows of the result, processes that surely end, figures of /proc."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import select
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
TRUE = "/bin/true"
LIMIT_S = 300
MIB = 1 << 20


class Failed(Exception):
    """A benchmark that did not come to its end; the text is for a person."""


@dataclasses.dataclass
class Row:
    """Our figure and, from the same run, what it is measured against."""

    what: str
    unit: str  # s, bytes, bytes/s, 1/s or 1 (how many times)
    better: str  # "lower" or "higher"
    ours: float
    ours_command: str
    how: str  # which of how many
    against: str = ""  # "": there is nothing to compare with
    theirs: float | None = None
    their_command: str = ""
    # at most, where lower is better; else at least
    goal: float | None = None  # of ours / theirs
    limit: float | None = None  # of ours alone

    @property
    def ratio(self):
        return self.ours / self.theirs if self.theirs else None

    @property
    def reached(self):
        """None: there is no goal, or nothing to measure it against."""
        known = [(have, want) for have, want in ((self.ratio, self.goal), (self.ours, self.limit))
                 if have is not None and want is not None]
        if not known:
            return None
        sign = 1 if self.better == "lower" else -1
        return all(sign * have <= sign * want for have, want in known)


@dataclasses.dataclass
class Gap:
    """A line that this run could not have, and why."""

    what: str
    reason: str


@dataclasses.dataclass
class Context:
    bin: pathlib.Path
    torch: str | None  # an interpreter that has PyTorch
    quick: bool
    scratch: pathlib.Path

    def count(self, full, quick):
        return quick if self.quick else full

    def torchrun(self, *args, ranks=2):
        return [self.torch, "-m", "torch.distributed.run", "--standalone",
                f"--nproc-per-node={ranks}", *args]

    def ctrun(self, *args, ranks=2):
        return [self.bin / "ctrun", "--standalone", f"--nproc-per-node={ranks}", *args]

    @staticmethod
    def note(text):
        """Says what is being measured, since that can take minutes."""
        print(f"  … {text}", file=sys.stderr, flush=True)

    def no_torch(self, what):
        return Gap(what, "there is no PyTorch (CTRUN_TORCH_PYTHON): make bench-deps")


def environment():
    """Ours, with one thread a process and gloo on loopback, as the rows say."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONDONTWRITEBYTECODE": "1"}


def text_of(command):
    return shlex.join(str(part) for part in command)


def median(values):
    return statistics.median(values)


def spawn(command, n=1):
    """Seconds from starting `n` equal processes to the end of the last, their output apart."""
    command = [str(part) for part in command]
    env = environment()
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    began = time.perf_counter()
    pids = [os.posix_spawn(command[0], command, env, file_actions=null) for _ in range(n)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    took = time.perf_counter() - began
    if any(codes):
        raise Failed(f"{text_of(command)} ended with {sorted(set(codes))}")
    return took


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def port_of(process, pattern):
    """The port that a server of the background says it has."""
    end = time.monotonic() + LIMIT_S
    while True:
        text = process.log.read_text(errors="replace")
        found = re.search(pattern, text)
        if found:
            return found[1]
        if process.poll() is not None or time.monotonic() > end:
            raise Failed(f"no server: {last_line(text)}")
        select.select([], [], [], 0.01)


def run(command, limit_s=LIMIT_S, **kwargs):
    """Runs a program to its end; its output."""
    command = [str(part) for part in command]
    with subprocess.Popen(command, env=environment(), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, start_new_session=True, **kwargs) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
        except BaseException as e:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(e, subprocess.TimeoutExpired):
                raise Failed(f"{text_of(command)} took longer than {limit_s} s") from e
            raise
    if process.returncode:
        raise Failed(f"{text_of(command)} ended with {process.returncode}: {last_line(err)}")
    return out


def run_json(command, **kwargs):
    """The same, for a program that prints lines of JSON; anything else is passed over."""
    lines = run(command, **kwargs).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


@contextlib.contextmanager
def background(command, folder, **kwargs):
    """A program that runs until the block ends; then it and all below it are killed, and
    gone. Its output is in `process.log`."""
    log = folder / f"{time.monotonic_ns()}.log"
    command = [str(part) for part in command]
    with open(log, "wb") as file:
        process = subprocess.Popen(command, env=environment(), stdout=file, stderr=file,
                                   start_new_session=True, **kwargs)
    process.log = log
    try:
        yield process
    finally:
        end_tree(process)
        log.unlink()


def end_tree(process):
    """Kills a process and all below it; then they are gone."""
    below = descendants(process.pid)
    process.kill()
    process.wait()
    # a launcher of ours ends its workers; others' are left to us
    wait_gone(below, 0.5) or kill(below)
    wait_gone(below, LIMIT_S)


def start_time(pid):
    """Tells a process from a later one of the same number; None: it is no more."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rsplit(")", 1)[1].split()
    return None if state == "Z" else fields[18]


def children(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += [int(p) for p in (task / "children").read_text().split()]
    return found


def descendants(pid):
    """{pid: start time} of everything below."""
    found, left = {}, [pid]
    while left:
        below = children(left.pop())
        found |= {p: start_time(p) for p in below}
        left += below
    return found


def kill(processes):
    for pid, started in processes.items():
        if started and start_time(pid) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_gone(processes, seconds):
    end = time.monotonic() + seconds
    while any(s and start_time(p) == s for p, s in processes.items()):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def peak_memory(pid):
    """The most bytes that were resident at a time."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise Failed(f"process {pid} has no peak of its memory")


def memory(pid):
    """(resident, anonymous) bytes of a process."""
    fields = dict(line.split(":", 1) for line in
                  pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("Rss", "Anonymous"))


class Roll:
    """Where workers report their process ids: a FIFO, so that no one has to look again and
    again. `fake-worker pid=PATH` writes a line to it."""

    def __init__(self, folder):
        self.path = folder / f"roll-{time.monotonic_ns()}"
        os.mkfifo(self.path, 0o600)
        self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        self.text = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)
        self.path.unlink()

    def has(self, n, seconds):
        """Whether `n` more have reported; waits for them no longer than that."""
        end = time.monotonic() + seconds
        while self.text.count(b"\n") < n:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                return False
            self.text += os.read(self.fd, 4096)
        return True

    def next(self, n, process):
        """The ids of the next `n` workers; `process` starts them."""
        while self.text.count(b"\n") < n:
            if not select.select([self.fd], [], [], LIMIT_S)[0]:
                said = last_line(process.log.read_text(errors="replace"))
                raise Failed(f"no worker reported within {LIMIT_S} s: {said}")
            self.text += os.read(self.fd, 4096)
        *lines, self.text = self.text.split(b"\n", n)
        return [int(line) for line in lines]
