"""torch's file timers: requests in a FIFO, and the signal when one has expired."""

import os
import signal
import sys

import pytest
from processes import alive

# as torch.distributed.elastic.timer.FileTimerClient writes
CLIENT = """
import json, os, select, signal, sys, time
def write(text):
    assert len(text) < select.PIPE_BUF
    with os.fdopen(os.open(os.environ["TORCHELASTIC_TIMER_FILE"],
                           os.O_WRONLY | os.O_NONBLOCK), "wt") as f:
        f.write(text)
def request(scope, at, number):
    return json.dumps({"version": 1, "pid": os.getpid(), "scope_id": scope,
                       "expiration_time": at, "signal": number}) + "\\n"
def acquire(scope, after, number=signal.SIGKILL):
    write(request(scope, time.time() + after, number))
def release(scope):
    write(request(scope, -1, 0))
"""


@pytest.fixture
def run(start, bin_dir, tmp_path):
    """run(script, …) starts ctrun with file timers, and Python workers that have the client."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()

    def begin(script, *options, env=None, prefix=()):
        return start(*prefix, bin_dir / "ctrun", "--standalone", *options, "--no-python", sys.executable,
                     "-u", "-c", CLIENT + script, tmp_path,
                     env={**os.environ, "TMPDIR": str(tmp), "TORCHELASTIC_ENABLE_FILE_TIMER": "1",
                          **(env or {})})

    yield begin
    assert list(tmp.iterdir()) == []


def test_worker_whose_timer_expires_is_signalled_and_the_report_says_why(run):
    ctrun = run("if os.environ['RANK'] == '0':\n"
                "    acquire('first', 600); acquire('stuck\\n here', 0.01); release('first')\n"
                "time.sleep(600)\n", "--nproc-per-node=2")
    assert ctrun.wait() == 128 + signal.SIGKILL
    root = ctrun.err()[ctrun.err().index("Root Cause"):]
    assert "rank      : 0" in root
    assert "the file timer 'stuck\\x0a here' of process" in root and "sent it SIGKILL" in root


def test_released_timer_does_not_expire(run, tmp_path):
    """The second timer, due later, shows that the first one's time has passed. In one piece:
    the time between the first one's two words must not depend on the machine."""
    ctrun = run("signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
                "write(request('a', time.time() + 0.2, signal.SIGKILL) + request('a', -1, 0))\n"
                "acquire('b', 0.3, signal.SIGUSR1)\n"
                "time.sleep(600)\n")
    assert ctrun.wait() == 0, ctrun.err()


def test_timer_of_a_restarted_worker_is_a_new_one(run):
    ctrun = run("if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
                "    acquire('a', 0.01)\n"
                "    time.sleep(600)\n"
                "acquire('b', 600)\n", "--max-restarts=1")
    assert ctrun.wait() == 0, ctrun.err()


def test_timer_of_a_worker_that_has_ended_goes_with_it(run):
    """Though its request is read later: after much the FIFO rests."""
    ctrun = run("signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
                "pid = os.path.join(sys.argv[1], 'pid')\n"
                "if os.environ['RANK'] == '0':\n"
                "    import fcntl, termios\n"
                "    with open(pid + '.new', 'w') as f:\n"
                "        f.write(str(os.getpid()))\n"
                "    fd = os.open(os.environ['TORCHELASTIC_TIMER_FILE'], os.O_WRONLY)\n"
                "    os.write(fd, request('none', -1, 0).encode() * 300)\n"
                "    while fcntl.ioctl(fd, termios.FIONREAD, bytes(4)) != bytes(4):\n"
                "        time.sleep(0.001)\n"
                "    acquire('late', 1.5)\n"
                "    os.rename(pid + '.new', pid)\n"
                "    os._exit(0)\n"
                "while not os.path.exists(pid) or os.path.exists('/proc/' + open(pid).read()):\n"
                "    time.sleep(0.01)\n"
                "acquire('own', 1.6, signal.SIGUSR1)\n"
                "time.sleep(600)\n", "--nproc-per-node=2", env={"CTRUN_LOG": "debug"})
    assert ctrun.wait() == 0, ctrun.err()
    assert "'own' of process" in ctrun.err()
    assert "its process is not there" not in ctrun.err()


def test_hostile_writer_costs_nothing(run, start, tmp_path):
    """Neither memory, nor the lives of others: a stranger, ctrun, its keeper."""
    stranger = start("sleep", "600")
    ctrun = run("signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
                "fd = os.open(os.environ['TORCHELASTIC_TIMER_FILE'], os.O_WRONLY)\n"
                "for pid in (%d, os.getppid(), int(open(f'/proc/{os.getppid()}/stat').read()"
                ".rsplit(')')[1].split()[1]), 1, 0, -1, 2**31):\n"
                "    os.write(fd, json.dumps({'pid': pid, 'scope_id': 'x', 'expiration_time': 1,"
                " 'signal': 9}).encode() + b'\\n')\n"
                "os.write(fd, b'{' * 300000 + b'\\n')\n"
                "for at in (9e9, -1):\n"
                "    for i in range(2100):\n"
                "        os.write(fd, json.dumps({'pid': os.getpid(), 'scope_id': f'x{i}',"
                " 'expiration_time': at, 'signal': 9}).encode() + b'\\n')\n"
                "acquire('own', 0.001, signal.SIGUSR1)\n"
                "time.sleep(600)\n" % stranger.pid)
    assert ctrun.wait() == 0, ctrun.err()
    assert alive(stranger.pid)
    assert ctrun.err().count("no request of torch's file timers") == 1
    assert ctrun.err().count("more file timers at once") == 1
    stranger.kill_group()


def test_timers_of_children_that_have_ended_make_room(run):
    """Their ends are seen by nobody but the worker: data loaders come and go all day."""
    ctrun = run("signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
                "gone = os.fork()\n"
                "if gone == 0:\n"
                "    os._exit(0)\n"
                "os.waitpid(gone, 0)\n"
                "fd = os.open(os.environ['TORCHELASTIC_TIMER_FILE'], os.O_WRONLY)\n"
                "for i in range(2100):\n"
                "    os.write(fd, json.dumps({'pid': gone, 'scope_id': f'x{i}',"
                " 'expiration_time': 9e9, 'signal': 9}).encode() + b'\\n')\n"
                "acquire('own', 0.001, signal.SIGUSR1)\n"
                "time.sleep(600)\n")
    assert ctrun.wait() == 0, ctrun.err()
    assert "more file timers at once" not in ctrun.err()


@pytest.mark.release_only  # a sanitizer wants descriptors of its own
def test_path_that_is_given_is_left_by_a_start_that_fails(run, tmp_path):
    """For want of descriptors."""
    path = tmp_path / "given"
    said = ""
    for n in (8, 9, 10):
        hold = (f"for i in {{3..66}}; do eval exec $i'</dev/null'; done; ulimit -n {64 + n}; exec \"$@\"")
        ctrun = run("pass\n", env={"TORCHELASTIC_TIMER_FILE": str(path)}, prefix=("bash", "-c", hold, "bash"))
        assert ctrun.wait(60) == 2
        said += ctrun.err()
        assert not path.exists(), said
    assert "event loop: " in said, said


@pytest.mark.parametrize("there, code", [(None, 0), ("stale", 0), ("file", 2)])
def test_path_that_is_given_is_taken(run, tmp_path, there, code):
    path = tmp_path / "given"
    if there == "stale":
        os.mkfifo(path)
    elif there == "file":
        path.write_text("precious")
    ctrun = run(f"assert os.environ['TORCHELASTIC_TIMER_FILE'] == '{path}'\n"
                "acquire('a', 600); release('a')\n", env={"TORCHELASTIC_TIMER_FILE": str(path)})
    assert ctrun.wait() == code, ctrun.err()
    if code:
        assert path.read_text() == "precious"
        assert len(ctrun.err().splitlines()) == 1 and "is no FIFO" in ctrun.err()
    else:
        assert not path.exists()


def test_launcher_in_a_worker_has_timers_of_its_own(run, bin_dir, tmp_path):
    path = tmp_path / "outer"
    ctrun = run("import subprocess\n"
                f"assert os.environ['TORCHELASTIC_TIMER_FILE'] == '{path}'\n"
                f"inner = subprocess.run(['{bin_dir}/ctrun', '--no-python', '/bin/sh', '-c',\n"
                "    'echo $TORCHELASTIC_TIMER_FILE'], capture_output=True, text=True)\n"
                "acquire('a', 600); release('a')\n"
                "print(inner.stdout + inner.stderr)\n", env={"TORCHELASTIC_TIMER_FILE": str(path)})
    assert ctrun.wait() == 0, ctrun.err()
    assert ctrun.out().strip().endswith("/timers")


def test_without_being_asked_for_there_are_none(run):
    ctrun = run("sys.exit('TORCHELASTIC_TIMER_FILE' in os.environ)\n",
                env={"TORCHELASTIC_ENABLE_FILE_TIMER": "0"})
    assert ctrun.wait() == 0, ctrun.err()
