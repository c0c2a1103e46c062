"""Where the workers' words go, by the command line, on files and on terminals."""

import os
import pty
import signal
import subprocess

import pytest
import training


@pytest.fixture
def run(bin_dir, tmp_path):
    """run(options, *actions, env={}) of two fake workers: (exit code, stdout, stderr)."""
    (tmp_path / "tmp").mkdir()

    def run(options, *actions, env=()):
        done = subprocess.run(
            [bin_dir / "ctrun", "--standalone", "--nproc-per-node=2", *options,
             bin_dir / "fake-worker", *actions],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path / "tmp"), **dict(env)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=training.PATIENCE)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def start_stalled(bin_dir, tmp_path):
    """start_stalled(*program) starts one worker whose output nobody reads."""
    (tmp_path / "tmp").mkdir()
    ours, theirs = os.pipe()
    started = []

    def begin(*program):
        started.append(subprocess.Popen(
            [bin_dir / "ctrun", "--standalone", *program], text=True,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
            stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE))
        os.close(theirs)
        return started[-1]

    yield begin
    os.close(ours)
    for process in started:
        process.kill()
        process.wait()


def files_in(folder):
    return {str(f.relative_to(folder)).split("/", 1)[1]: f.read_text()
            for f in folder.rglob("*") if f.is_file()}


WORDS = ("print=out%r", "err=err%r")


def test_masks_prefixes_and_filters_of_torchruns_command_line(run, tmp_path):
    logs = tmp_path / "logs"
    options = [f"--log-dir={logs}", "--tee", "0:1", "-r=0:2,1:1", "--duplicate_stdout_filters=ut0"]
    prefix = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${rank}>"}
    assert run(options, *WORDS, env=prefix) == (0, "<0>out0\n", "err1\n")
    expected = {f"attempt_1/{r}/std{s}.log": f"{s}{r}\n" for r in (0, 1) for s in ("out", "err")}
    assert files_in(logs) == {**expected, "attempt_1/filtered_stdout.log": "<0>out0\n"}
    options = ["-t3", "--role=actor", "--local-ranks-filter=1",
               "--log-line-prefix-template=${role_name} $rank|"]
    code, out, err = run(options, *WORDS, env=prefix)
    assert (code, out) == (0, "actor 1|out1\n")
    assert err.endswith("actor 1|err1\n") and "the workers' output is kept path=" in err
    (kept,) = (tmp_path / "tmp").iterdir()
    assert files_in(kept.parent) == expected


def test_output_of_what_failed_is_kept_and_named(run, tmp_path):
    assert run([], *WORDS)[0] == 0
    assert list((tmp_path / "tmp").iterdir()) == []
    code, out, err = run(["--console=none"], *WORDS, "--on", "rank=1", "exit=3", "hang")
    (kept,) = (tmp_path / "tmp").iterdir()
    assert (code, out) == (3, "") and "err0" not in err
    assert f"{kept}/attempt_1/1" in err
    assert files_in(kept.parent)["attempt_1/1/stdout.log"] == "out1\n"
    # a worker that failed on the way is remembered though the job ended well
    assert run(["--max-restarts=1"], *WORDS, "--on", "restart=0", "exit=3")[0] == 0
    assert len(list((tmp_path / "tmp").iterdir())) == 2


def test_words_that_nobody_reads_are_kept_and_that_is_said(start_stalled, tmp_path):
    ctrun = start_stalled("seq", "60000")
    assert ctrun.wait(timeout=training.PATIENCE) == 0
    (kept,) = (tmp_path / "tmp").iterdir()
    assert f"the end of it is in their files only path={kept}" in ctrun.stderr.read()
    assert files_in(kept.parent)["attempt_1/0/stdout.log"].endswith("\n60000\n")


def test_file_has_what_a_worker_ended_with_in_front_of_a_reader_that_stalls(start_stalled, tmp_path):
    size = 8 << 20  # what may wait for the console; in small parts less may, and a pipe holds the rest
    ctrun = start_stalled(f"--log-dir={tmp_path}/logs", "seq", "-f", "%07.0f", str(size // 8))
    assert ctrun.wait(timeout=training.PATIENCE) == 0
    assert "in their files only" in ctrun.stderr.read()
    assert len(files_in(tmp_path / "logs")["attempt_1/0/stdout.log"]) == size


def test_run_that_was_stopped_leaves_no_files_that_nobody_names(start, bin_dir, tmp_path, wait_for):
    (tmp_path / "tmp").mkdir()
    ready = tmp_path / "ready"
    ctrun = start(bin_dir / "ctrun", bin_dir / "fake-worker", "print=hello", f"touch={ready}", "hang",
                  env={**os.environ, "TMPDIR": str(tmp_path / "tmp")})
    wait_for(ready.exists)
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM
    assert list((tmp_path / "tmp").iterdir()) == []


def test_output_of_what_failed_before_the_run_was_stopped_is_kept(start, bin_dir, tmp_path, wait_for):
    (tmp_path / "tmp").mkdir()
    ready = tmp_path / "ready"
    ctrun = start(bin_dir / "ctrun", "--max-restarts=1", bin_dir / "fake-worker", "print=hello",
                  "--on", "restart=0", "exit=3", f"touch={ready}", "hang",
                  env={**os.environ, "TMPDIR": str(tmp_path / "tmp")})
    wait_for(ready.exists)
    ctrun.signal(signal.SIGTERM)
    assert ctrun.wait() == 128 + signal.SIGTERM
    (kept,) = (tmp_path / "tmp").iterdir()
    assert f"log={kept}/attempt_1/0" in ctrun.err()
    assert files_in(kept.parent)["attempt_1/0/stdout.log"] == "hello\n"


def test_limit_on_the_size_of_files_ends_no_job(bin_dir, tmp_path):
    done = subprocess.run(["sh", "-c", f"ulimit -f 100; exec {bin_dir}/ctrun seq 20000"],
                          env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True,
                          text=True, timeout=training.PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n20000\n") and "File too large" in done.stderr


def test_worker_of_a_terminal_has_one_and_is_told_its_new_size(start, bin_dir, wait_for, tmp_path):
    ready = tmp_path / "ready"
    ours, slave = pty.openpty()
    for fd, code in ((0, 1), (1, 0), (2, 1)):  # stdin is /dev/null, stderr a file
        done = subprocess.run([bin_dir / "ctrun", "--no-python", "test", "-t", str(fd)],
                              stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.DEVNULL,
                              timeout=training.PATIENCE)
        assert done.returncode == code
    ctrun = start(bin_dir / "ctrun", bin_dir / "fake-worker", f"on={int(signal.SIGWINCH)}:7",
                  f"touch={ready}", "hang", preexec_fn=lambda: os.dup2(slave, 1))
    wait_for(ready.exists)
    ctrun.signal(signal.SIGWINCH)
    assert ctrun.wait() == 7
    os.close(ours)
    os.close(slave)
