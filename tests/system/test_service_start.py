"""The start of ctrun-rendezvous: what it waits for, and signals that come before it is over."""

import fcntl
import os
import re
import signal
import socket
import sqlite3
import subprocess

import pytest

IS_WAITING = "another program uses the state: waiting for it"


@pytest.fixture
def kept(start_server, tmp_path):
    """The folder of a service that has ended."""
    folder = tmp_path / "state"
    server = start_server(f"--state-dir={folder}", "--state-reserve-mib=1")
    server.process.signal(signal.SIGTERM)
    assert server.process.wait() == 0
    return folder


@pytest.fixture
def begin(start, bin_dir):
    """begin(folder, *options): a start with that state, which need not come to its end."""

    def run(folder, *options, **kwargs):
        return start(bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0",
                     f"--state-dir={folder}", "--state-reserve-mib=1", *options, **kwargs)

    return run


@pytest.fixture
def reader(kept):
    """sqlite3 has the state open, and has read."""
    with sqlite3.connect(kept / "state.db") as db:
        assert db.execute("select boot from identity").fetchall() == [(1,)]
    yield db
    db.close()


@pytest.fixture
def looker(kept):
    """As --check-config holds the folder while it reads."""
    with open(kept / "lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield lock


# --- what somebody else has ---


def test_state_that_is_read_for_a_moment_is_waited_for(kept, reader, begin, wait_for):
    process = begin(kept)
    wait_for(lambda: IS_WAITING in process.err())
    reader.close()
    wait_for(lambda: "listening on" in process.out())
    assert process.err().count(IS_WAITING) == 1


def test_state_that_stays_open_elsewhere_is_a_failure_that_may_pass(kept, reader, begin):
    process = begin(kept)
    assert process.wait() == 1, process.err()
    assert process.err().count(IS_WAITING) == 1
    assert "has the state" in process.err() and "open (sqlite3?): end it" in process.err()


def test_folder_that_is_looked_at_for_a_moment_is_waited_for(kept, looker, begin, wait_for):
    process = begin(kept)
    wait_for(lambda: IS_WAITING in process.err())
    fcntl.flock(looker, fcntl.LOCK_UN)
    wait_for(lambda: "listening on" in process.out())


def test_who_looks_for_long_is_not_taken_for_the_service_of_before(kept, looker, begin):
    assert re.fullmatch(r"\d+\n", (kept / "lock").read_text())  # of who has ended
    process = begin(kept)
    assert process.wait() == 1, process.err()
    assert "another program looks at the state in" in process.err()
    assert "pid" not in process.err()


def test_two_that_look_do_not_disturb_each_other(bin_dir, kept, looker):
    result = subprocess.run([bin_dir / "ctrun-rendezvous", "--check-config",
                             "--max-connections=100",  # for any machine's limit of files
                             f"--state-dir={kept}"], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and not result.stderr, result.stderr


# --- signals ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_start_that_is_told_to_stop_ends_with_0(kept, looker, begin, wait_for, number):
    process = begin(kept)
    wait_for(lambda: IS_WAITING in process.err())
    process.signal(number)
    assert process.wait() == 0, process.err()
    assert "stopping before the start is over" in process.err()


def test_hangup_during_the_start_is_heard_when_it_is_over(kept, looker, begin, wait_for):
    process = begin(kept)
    wait_for(lambda: IS_WAITING in process.err())
    process.signal(signal.SIGHUP)
    fcntl.flock(looker, fcntl.LOCK_UN)
    wait_for(lambda: "the configuration was read again changed=none" in process.err())
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


# --- what cannot be ---


def test_limit_of_a_files_size_is_an_error_like_any_other(bin_dir, tmp_path):
    result = subprocess.run(["prlimit", "--fsize=2000000", bin_dir / "ctrun-rendezvous",
                             "--listen=127.0.0.1:0", f"--state-dir={tmp_path}/state"],
                            capture_output=True, text=True, timeout=300)
    assert result.returncode == 1, result.stderr
    assert "reserve: File too large; raise the limit of a file's size" in result.stderr


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("is_relative", [False, True])
def test_path_that_sqlite_does_not_take_is_refused_at_once(bin_dir, tmp_path, is_there,
                                                           is_relative):
    folder = tmp_path
    while len(str(folder)) < 460:
        folder /= "deep" * 5
    folder.mkdir(parents=True)
    state = folder / ("s" * 32)
    if is_there:
        state.mkdir(mode=0o700)
    for option in ("--check-config", "--state-reserve-mib=1"):
        result = subprocess.run(
            [bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0", option,
             f"--state-dir={state.name if is_relative else state}"],
            capture_output=True, text=True, timeout=300, cwd=folder)
        assert result.returncode == 2, result.stderr
        assert "give a shorter --state-dir" in result.stderr
        assert result.stderr.count("\n") == 1
        assert state.exists() == is_there and not (is_there and os.listdir(state))


# --- what it was started with ---


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_are_no_places_for_its_own_descriptors(
        closed, start, bin_dir, free_port, wait_for):
    def close():
        for fd in closed:
            os.close(fd)

    process = start(bin_dir / "ctrun-rendezvous", f"--listen=127.0.0.1:{free_port}",
                    "--log-level=debug", preexec_fn=close)
    folder = f"/proc/{process.pid}/fd"

    def listens():
        try:
            socket.create_connection(("127.0.0.1", free_port), timeout=1).close()
        except OSError:
            return False
        return True

    wait_for(listens)
    assert all(os.readlink(f"{folder}/{fd}") == "/dev/null" for fd in closed)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
