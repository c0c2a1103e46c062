"""How a job is stopped: signals and their time, as PID 1, with a terminal."""

import contextlib
import ctypes
import json
import os
import pty
import select
import signal
import subprocess
import termios

import pytest
import training
from processes import alive, pids_in


PTRACE_ATTACH = 16


def trace(request, pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(request, pid, None, None) < 0:
        pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")


@pytest.fixture
def launch_ready(launch, wait_for, tmp_path):
    """As launch; returns when every one of the fake workers has done its actions."""

    def run(*actions, options=(), nproc=2, **kwargs):
        ready = tmp_path / "ready-%r"
        ctrun = launch(*actions, f"touch={ready}", "hang",
                       options=["--standalone", f"--nproc-per-node={nproc}", *options], **kwargs)
        wait_for(lambda: all((tmp_path / f"ready-{r}").exists() for r in range(nproc)))
        return ctrun

    return run


@pytest.mark.parametrize("number, word, name", [(signal.SIGUSR1, "usr1", "SIGUSR1"),
                                                (37, "RTMIN+3", "SIGRTMIN+3")])
def test_listed_signal_reaches_the_workers_and_their_environment(launch_ready, number, word, name):
    ctrun = launch_ready("env", f"on={int(number)}:0", env={"CTRUN_LOG": "debug"},
                         options=[f"--signals-to-handle=SIGTERM,{word},SIGNOPE"])
    ctrun.signal(number)
    assert ctrun.wait() == 128 + number
    env = json.loads(ctrun.out().splitlines()[0])
    assert env["TORCHELASTIC_SIGNALS_TO_HANDLE"] == f"SIGTERM,{name}"
    assert f"{name}: passed it on to the workers" in ctrun.err()
    assert f"closing signal {name} " in ctrun.err()
    assert ctrun.err().count("left out: SIGNOPE") == 1


def test_signal_that_is_not_listed_ends_ctrun_and_leaves_nothing(launch_ready, wait_for, tmp_path):
    pids = tmp_path / "pids"
    ctrun = launch_ready("child=double", f"pid={pids}", options=["--signals-to-handle=SIGINT"])
    assert "leaves out SIGTERM" in ctrun.err()
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == -signal.SIGTERM
    found = pids_in(pids)
    assert len(found) >= 4
    wait_for(lambda: not any(alive(pid) for pid in found))
    wait_for(lambda: not list((tmp_path / "tmp").iterdir()))


@pytest.mark.parametrize("options, env", [
    (["--shutdown-timeout=0"], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600"}),
    ([], {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "0"}),
])
def test_workers_that_take_longer_than_they_may_are_killed(launch_ready, options, env):
    ctrun = launch_ready("ignore=15", options=options, env=env)
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM
    assert "killed the workers" not in ctrun.err()  # nobody asked again


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_signals_that_come_until_the_last_moment_leave_nothing(launch, wait_for, tmp_path, count):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    for i in range(count):
        ready = tmp_path / f"ready-{i}"
        ctrun = launch(f"touch={ready}", "hang", options=["--standalone"],
                       env={"TMPDIR": str(temporary)})
        wait_for(ready.exists)
        while ctrun.popen.poll() is None:
            ctrun.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                ctrun.popen.wait(0.002)
        assert ctrun.popen.returncode == 128 + signal.SIGTERM, ctrun.err()
        assert not list(temporary.iterdir())


def test_time_to_stop_that_is_none_is_a_mistake(launch):
    ctrun = launch("hang", env={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "-1"})
    assert ctrun.wait() == 2
    assert len(ctrun.err().splitlines()) == 1
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT: expects whole seconds" in ctrun.err()


def test_end_after_slurms_warning_is_passed_on_and_kills_nobody(launch_ready, wait_for):
    ctrun = launch_ready("ignore=10", f"on={int(signal.SIGTERM)}:0",
                         options=["--signals-to-handle=SIGTERM,SIGUSR1"])
    ctrun.signal(signal.SIGUSR1)
    wait_for(lambda: "SIGUSR1: passed it on" in ctrun.err())
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM
    assert "SIGTERM: passed it on" in ctrun.err()
    assert "killed" not in ctrun.err()


def test_keeper_is_not_found_by_the_words_of_the_command(launch_ready):
    """`pkill -9 -f WORD` ends agent and workers; the keeper ends the rest."""
    ctrun = launch_ready()
    keeper, = training.children(ctrun.pid)
    for name in ("comm", "cmdline"):
        with open(f"/proc/{keeper}/{name}", "rb") as f:
            assert f.read().strip(b"\0\n") == b"job-keeper"
    with open(f"/proc/{ctrun.pid}/cmdline", "rb") as f:
        assert b"fake-worker" in f.read()
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM


def test_stopped_worker_is_let_go_on_to_end(launch_ready):
    ctrun = launch_ready(f"on={int(signal.SIGTERM)}:0")
    os.kill(training.workers(ctrun.pid)[1], signal.SIGSTOP)
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM
    assert "forcefully exiting" not in ctrun.err()


def test_stopped_keeper_is_let_go_on(launch_ready, wait_for):
    """Else nothing but kill -9 ended the job: it is the keeper that signals the workers."""
    ctrun = launch_ready()
    keeper, = training.children(ctrun.pid)
    os.kill(keeper, signal.SIGSTOP)
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM
    assert f"stopped by somebody: let it go on keeper={keeper}\n" in ctrun.err()


def test_keeper_that_stays_stopped_is_killed_and_leaves_nothing(launch_ready, wait_for, tmp_path):
    """As by a debugger, which SIGCONT does not impress."""
    pids = tmp_path / "pids"
    ctrun = launch_ready("child=double", f"pid={pids}")
    keeper, = training.children(ctrun.pid)
    trace(PTRACE_ATTACH, keeper)
    os.waitpid(keeper, 0)  # it has stopped
    found = pids_in(pids)
    assert len(found) >= 4
    ctrun.signal(signal.SIGTERM)
    os.waitpid(keeper, 0)  # it was killed, and is no more ours
    assert ctrun.wait() == 128 + signal.SIGTERM
    assert f"stays stopped: killed it, and with it the workers of this node keeper={keeper}\n" in ctrun.err()
    assert not any(alive(pid) for pid in found)


@pytest.mark.parametrize("kind", ["setsid", "double"])
def test_next_generation_starts_when_all_of_the_last_one_is_gone(launch_ready, tmp_path, kind):
    """Whatever a worker has started, in whichever session: it may hold a GPU, or a port."""
    pids = tmp_path / "pids"
    ctrun = launch_ready("--on", "restart=0", f"child={kind}", "--on", "restart=0", f"pid={pids}",
                         "--on", "restart=0,rank=0", f"touch={tmp_path}/first",
                         "--on", "restart=0,rank=1", f"wait={tmp_path}/first",
                         "--on", "restart=0,rank=1", "exit=1", "--on", "restart=0", "hang",
                         options=["--max-restarts=1"])
    found = pids_in(pids)
    assert len(found) >= 4
    assert not any(alive(pid) for pid in found)
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM


# --- as PID 1 ---


@pytest.fixture
def pid_1(start, bin_dir, wait_for, tmp_path):
    """pid_1(*actions) starts ctrun as a container does; returns (the container, ctrun's pid)."""

    def run(*actions):
        ready = tmp_path / "ready"
        box = start("unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                    bin_dir / "ctrun", "--standalone", bin_dir / "fake-worker", *actions,
                    f"touch={ready}", "hang", env={**os.environ, "TMPDIR": str(tmp_path)})
        wait_for(ready.exists)
        pid, = training.children(box.pid)
        return box, pid

    return run


def test_pid_1_passes_signals_on_and_ends_as_the_shell_has_it(pid_1):
    box, pid = pid_1(f"on={int(signal.SIGTERM)}:0")
    os.kill(pid, signal.SIGUSR1)  # nothing, for PID 1: a signal without a handler is dropped
    os.kill(pid, signal.SIGTERM)
    assert box.wait() == 128 + signal.SIGTERM
    assert "SIGTERM: passed it on to the workers" in box.err()


def test_pid_1_reaps_orphans_that_are_not_its_workers(pid_1, wait_for, tmp_path):
    """Such as `docker exec` leaves; orphans of the workers are the keeper's."""
    box, pid = pid_1("child=double")
    keeper, = training.children(pid)
    go = tmp_path / "go"
    subprocess.run(["nsenter", "-t", str(pid), "--pid", "--mount", "sh", "-c",
                    f"(while [ ! -e {go} ]; do sleep 0.01; done) &"], check=True)
    assert len(training.children(pid)) == 2
    go.touch()
    wait_for(lambda: training.children(pid) == [keeper])
    os.kill(pid, signal.SIGTERM)
    assert box.wait() == 128 + signal.SIGTERM


# --- at a terminal ---


class Terminal:
    """ctrun in the foreground of a terminal of its own, of which this is the user's end."""

    def __init__(self, args, env):
        self.seen = b""
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # though these tests run under nohup
            os.execve(args[0], [str(a) for a in args], env)

    def shows(self, text):
        """True when it has shown that; takes what is there, without waiting."""
        while select.select([self.fd], [], [], 0)[0]:
            try:
                got = os.read(self.fd, 65536)
            except OSError:
                break  # nobody has it open any more
            if not got:
                break
            self.seen += got
        return text in self.seen

    def type(self, text):
        os.write(self.fd, text)

    def has_ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


@pytest.fixture
def terminal(bin_dir, tmp_path):
    """terminal(script, *arguments, nproc=1) runs a Python script by ctrun in a terminal."""
    opened = []

    def run(script, *arguments, nproc=1, options=()):
        path = tmp_path / "script.py"
        path.write_text(script)
        opened.append(Terminal([bin_dir / "ctrun", "--standalone", f"--nproc-per-node={nproc}",
                                *options, path, *arguments], {**os.environ, "TMPDIR": str(tmp_path)}))
        return opened[-1]

    yield run
    for t in opened:
        if not t.has_ended():
            os.kill(t.pid, signal.SIGKILL)
            os.waitpid(t.pid, 0)
        t.close()


# as torch.distributed.breakpoint() does
OF_TORCH = "sys.stdin = open('/dev/stdin'); pdb.Pdb(nosigint=True).set_trace()"


@pytest.mark.parametrize("nproc, debugger", [(1, "breakpoint()"), (2, OF_TORCH)])
def test_debugger_works_in_a_worker(terminal, wait_for, nproc, debugger):
    """With several the last rank has the breakpoint: all have the user's stdin."""
    t = terminal(f"import os, pdb, sys\nif int(os.environ['RANK']) == {nproc - 1}:\n"
                 f"    {debugger}\n    print('through')\n", nproc=nproc)
    wait_for(lambda: t.shows(b"-> print('through')") or t.has_ended())
    t.type(b"p 6 * 7000\n")
    wait_for(lambda: t.shows(b"42000") or t.has_ended())
    t.type(b"c\n")
    wait_for(t.has_ended)
    wait_for(lambda: t.shows(b"through"))
    assert t.status == 0, t.seen


def test_prompt_of_a_rank_that_is_not_shown_is_told(terminal, wait_for):
    """All ranks have the user's stdin: what is typed may go to one that nobody sees."""
    t = terminal(f"import os, pdb, sys\n{OF_TORCH}\nprint('through', os.environ['RANK'])\n",
                 nproc=2, options=["--console=0"])
    wait_for(lambda: t.shows(b"rank 1 waits at a prompt that the console does not show, (Pdb)")
             and t.shows(b"rank 0") or t.has_ended())
    wait_for(lambda: t.shows(b"-> print('through'") or t.has_ended())
    t.type(b"c\nc\n")
    wait_for(t.has_ended)
    assert t.status == 0 and t.seen.count(b"waits at a prompt") == 2, t.seen


SLEEPER = """
import os, signal, sys, time
def on_signal(number, frame):
    print("got", number, flush=True)
    sys.exit(0)
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, on_signal)
with open(sys.argv[1], "w") as f:
    f.write(str(os.getpid()))
print("up", flush=True)
time.sleep(600)
"""


def test_ctrl_c_reaches_the_workers_once(terminal, wait_for, tmp_path):
    t = terminal(SLEEPER, tmp_path / "pid")
    wait_for(lambda: t.shows(b"up"))
    t.type(b"\x03")
    wait_for(t.has_ended)
    assert t.status == 128 + signal.SIGINT
    wait_for(lambda: t.shows(b"got 2"))  # the kernel hands it over when it has time
    assert t.seen.count(b"got") == 1


def test_terminal_that_is_closed_leaves_nothing(terminal, wait_for, tmp_path):
    t = terminal(SLEEPER, tmp_path / "pid")
    wait_for(lambda: t.shows(b"up"))
    t.close()  # HUP to ctrun, which passes it on; what both say then goes nowhere
    wait_for(t.has_ended)
    assert t.status == 128 + signal.SIGHUP
    assert not any(alive(pid) for pid in pids_in(tmp_path / "pid"))


def test_terminal_is_as_it_was_after_a_worker_was_killed_at_a_prompt(terminal, wait_for):
    t = terminal("import os, signal, termios\n"
                 "mode = termios.tcgetattr(0)\n"
                 "mode[3] &= ~(termios.ECHO | termios.ICANON)\n"
                 "termios.tcsetattr(0, termios.TCSANOW, mode)\n"
                 "os.kill(os.getpid(), signal.SIGKILL)\n")
    before = termios.tcgetattr(t.fd)
    wait_for(t.has_ended)
    assert t.status == 128 + signal.SIGKILL
    assert termios.tcgetattr(t.fd) == before and before[3] & termios.ECHO
