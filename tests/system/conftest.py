"""Fixtures for tests that run the real programs."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest
import training
from store_client import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def bin_dir():
    """The folder of the programs under test: $BIN, else the release build."""
    path = pathlib.Path(os.environ.get("BIN", ROOT / "build/release/bin")).resolve()
    assert path.is_dir(), f"{path} is not there: build first, or set BIN"
    return path


@pytest.fixture(scope="session")
def linked_program():
    """A script for two ranks, its argument a socket's path: one fails once the other is gone."""
    return ROOT / "tests/fakes/linked.py"


@pytest.fixture(scope="session")
def wait_for():
    """wait_for(condition, timeout) calls it until its result is true, and returns that."""

    def wait(condition, timeout=training.PATIENCE):
        end = time.monotonic() + timeout
        while True:
            result = condition()
            if result:
                return result
            assert time.monotonic() < end, f"not true within {timeout} s: {condition}"
            time.sleep(0.01)

    return wait


@pytest.fixture
def free_port():
    """A TCP port that nobody listened on a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """A program in a process group of its own, its output in files."""

    def __init__(self, args, folder, name, **kwargs):
        self.out_path = folder / f"{name}.out"
        self.err_path = folder / f"{name}.err"
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.popen = subprocess.Popen(
                [str(a) for a in args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                **kwargs,
            )

    @property
    def pid(self):
        return self.popen.pid

    def out(self):
        return self.out_path.read_text(errors="replace")

    def err(self):
        return self.err_path.read_text(errors="replace")

    def signal(self, number):
        self.popen.send_signal(number)

    def wait(self, timeout=training.PATIENCE):
        """Its exit status: as subprocess has it, negative for a signal."""
        return self.popen.wait(timeout)

    def kill_group(self):
        """Ends it and what it started; only ever the group that was made for it."""
        try:
            os.killpg(self.popen.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.popen.wait()


@pytest.fixture
def start(tmp_path):
    """start(*args, **kwargs) runs a program; it is killed at the end of the test."""
    started = []

    def start_one(*args, **kwargs):
        name = f"{pathlib.Path(args[0]).name}-{len(started)}"
        started.append(Process(args, tmp_path, name, **kwargs))
        return started[-1]

    yield start_one
    for process in started:
        process.kill_group()
    for process in started:
        text = process.err()
        assert "Sanitizer" not in text and "runtime error" not in text, text
        assert ": bug: " not in text, text  # a failed ASSERT


@pytest.fixture
def start_server(start, bin_dir, wait_for):
    def start_one(*args, n_listen=1, **kwargs):
        if not any(str(a).startswith("--listen") for a in args):
            args = ("--listen=127.0.0.1:0", *args)
        process = start(bin_dir / "ctrun-rendezvous", *args, **kwargs)

        def ports():
            assert process.popen.poll() is None, process.err()
            found = re.findall(r"listening on \S+:(\d+)\n", process.out())
            return found if len(found) == n_listen else None

        return Server(process, [int(p) for p in wait_for(ports)])

    return start_one


@pytest.fixture
def server(start_server):
    """A server, and a client that must not notice anything of what the test does."""
    server = start_server()
    with server.client() as bystander:
        bystander.set("/bystander", "here")
        assert bystander.ping()
        yield server
        assert bystander.get("/bystander") == b"here"
    assert server.process.popen.poll() is None, server.process.err()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return training.write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def golden(bin_dir, corpus, tmp_path_factory):
    """What the undisturbed run on one rank gives, for each sampler: losses and state_hash."""
    made = {}

    def make(sampler="permute"):
        if sampler not in made:
            run_dir = tmp_path_factory.mktemp("golden") / sampler
            subprocess.run(
                [bin_dir / "ctrun-worker",
                 *training.overrides(corpus, run_dir, f"data.sampler={sampler}")],
                check=True, stdout=subprocess.DEVNULL, timeout=300,
            )
            made[sampler] = {
                "losses": training.loss_column(run_dir),
                "hash": training.state_hash(bin_dir, run_dir),
            }
        return made[sampler]

    return make


@pytest.fixture
def train(bin_dir, start, corpus):
    """train(run_dir, *overrides, nproc=2, options=()) starts ctrun with ctrun-worker."""

    def begin(run_dir, *extra, nproc=2, options=(), prefix=(), **kwargs):
        return start(
            *prefix, bin_dir / "ctrun", f"--nproc-per-node={nproc}", *options, "ctrun-worker",
            *training.overrides(corpus, run_dir, *extra), **kwargs,
        )

    return begin


@pytest.fixture(scope="session")
def train_in(bin_dir, corpus, tmp_path_factory):
    """train_in(*overrides, nproc=N) trains to the end: the run's folder, and the process."""

    def run_one(*extra, nproc):
        folder = tmp_path_factory.mktemp("train")
        run = Process([bin_dir / "ctrun", f"--nproc-per-node={nproc}", "ctrun-worker",
                       *training.overrides(corpus, folder / "run", *extra)], folder, "ctrun")
        assert run.wait() == 0, run.err()
        return folder / "run", run

    return run_one


@pytest.fixture
def launch(start, bin_dir, tmp_path):
    """launch(*actions, options=[…]) starts ctrun with a fake worker; its TMPDIR is the test's."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()

    def run(*actions, options=("--standalone", "--nproc-per-node=2"), env=None):
        full = {**os.environ, "TMPDIR": str(tmp), **(env or {})}
        return start(bin_dir / "ctrun", *options, bin_dir / "fake-worker", *actions, env=full)

    yield run
    assert list(tmp.glob("ctrun-*")) == [], "left in TMPDIR"
