"""File systems and name servers that do not answer: nothing of ctrun's waits for them for long."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import os, pathlib, sys, time
print("file:", os.environ["TORCHELASTIC_ERROR_FILE"], flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
sys.exit(3 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else 0)
"""


@pytest.fixture
def mute():
    """mute(pid, folder) puts a file system over it, for that process, that never answers."""
    opened = []
    if not os.path.exists("/dev/fuse"):
        pytest.skip("no /dev/fuse")

    def over(pid, folder):
        fd = os.open("/dev/fuse", os.O_RDWR)
        opened.append(fd)
        options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
        subprocess.run(["nsenter", "-t", str(pid), "-m", "mount", "-i", "-t", "fuse", "-o",
                        options, "mute", folder], pass_fds=[fd], check=True)

    yield over
    for fd in opened:
        os.close(fd)  # whoever waits gets an error


@pytest.mark.soak
@pytest.mark.parametrize("max_restarts", [0, 1])
def test_error_file_that_cannot_be_read_holds_up_neither_the_news_nor_the_restart(
    start, bin_dir, tmp_path, wait_for, mute, max_restarts
):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    ctrun = start("unshare", "-m", bin_dir / "ctrun", "--nproc-per-node=1", f"--max-restarts={max_restarts}",
                  script, tmp_path / "go",
                  env={**os.environ, "TMPDIR": str(tmp), "PYTHON_EXEC": sys.executable})
    path = wait_for(lambda: re.search("file: (.*)\n", ctrun.out()))[1]
    mute(ctrun.pid, pathlib.Path(path).parent)
    (tmp_path / "go").touch()
    began = time.monotonic()
    assert ctrun.wait() == (0 if max_restarts else 3), ctrun.err()
    assert time.monotonic() - began < 10
    assert ctrun.err().count("the exceptions of workers that fail cannot be read") == 1
    if max_restarts:
        assert "rank 0 on" in ctrun.err() and "ended with exit code 3" in ctrun.err()
    else:
        assert "(what it may have left as its exception cannot be read: the file system of " in ctrun.err()
    assert "cannot be killed" not in ctrun.err()


@pytest.mark.soak
def test_log_folder_that_does_not_answer_holds_up_neither(
    start, bin_dir, tmp_path, wait_for, mute
):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ctrun = start("unshare", "-m", bin_dir / "ctrun", "--nproc-per-node=1", "--max-restarts=1",
                  f"--log-dir={tmp_path / 'logs'}", script, tmp_path / "go",
                  env={**os.environ, "PYTHON_EXEC": sys.executable})
    wait_for(lambda: "file: " in ctrun.out())
    mute(ctrun.pid, tmp_path / "logs")
    (tmp_path / "go").touch()
    began = time.monotonic()
    assert ctrun.wait() == 0, ctrun.err()
    assert time.monotonic() - began < 15
    assert "ended with exit code 3" in ctrun.err() and "restarting (1 of 1)" in ctrun.err()


NAME_SERVER = """
import os, pathlib, signal, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
pid = os.fork()
if pid == 0:
    signal.pause()
pathlib.Path(sys.argv[1]).write_text(str(pid))
"""


@pytest.mark.thorough
def test_name_server_that_does_not_answer_holds_up_no_stop(start, bin_dir, tmp_path, wait_for):
    """The C library would wait for it for ten seconds."""
    (tmp_path / "conf").write_text("nameserver 127.0.0.1\n")
    (tmp_path / "server.py").write_text(NAME_SERVER)
    script = (f"ip link set lo up && mount --bind {tmp_path}/conf /etc/resolv.conf && "
              f'{sys.executable} {tmp_path}/server.py {tmp_path}/pid && exec "$@"')
    ctrun = start("unshare", "-n", "-m", "sh", "-c", script, "sh", bin_dir / "ctrun",
                  "--nnodes=2", "--rdzv-endpoint=node.example.org:29400", "/bin/true")
    wait_for(lambda: "(looking up the name node.example.org)" in ctrun.err())
    try:
        began = time.monotonic()
        ctrun.signal(signal.SIGTERM)
        assert ctrun.wait() == 128 + signal.SIGTERM, ctrun.err()
        assert time.monotonic() - began < 2
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
