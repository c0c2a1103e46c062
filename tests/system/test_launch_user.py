"""ctrun as a user meets it: mistakes in the command, an endpoint that is not there, the report."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
import training

# --- one node ---


@pytest.mark.parametrize("part, streams", [("part", "shared"), ("errpart", "shared"),
                                           ("errpart", "apart"), ("part", "apart")])
def test_report_begins_on_a_fresh_line(bin_dir, part, streams):
    done = subprocess.run([bin_dir / "ctrun", bin_dir / "fake-worker", f"{part}=half", "exit=3"],
                          stdout=subprocess.PIPE, text=True, timeout=training.PATIENCE,
                          stderr=subprocess.STDOUT if streams == "shared" else subprocess.PIPE)
    assert done.returncode == 3
    if (part, streams) == ("part", "apart"):
        assert done.stdout == "half"  # its bytes are its own
        assert done.stderr.startswith("ctrun: ")
    else:
        assert (done.stdout if streams == "shared" else done.stderr).startswith("half\nctrun: ")
    assert "\n=====" in (done.stdout if streams == "shared" else done.stderr)


@pytest.mark.parametrize("level, code", [("bogus", 2), ("", 0), ("Debug", 0), ("info", 0)])
def test_a_log_level_that_is_none_is_refused(bin_dir, level, code):
    done = subprocess.run([bin_dir / "ctrun", "/bin/true"], env={**os.environ, "CTRUN_LOG": level},
                          capture_output=True, text=True, timeout=training.PATIENCE)
    assert done.returncode == code, done.stderr
    assert ("CTRUN_LOG=bogus: expects error, warn, info or debug" in done.stderr) == (code == 2)


def test_worker_that_ends_well_keeps_its_bytes(bin_dir):
    done = subprocess.run([bin_dir / "ctrun", bin_dir / "fake-worker", "part=half"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=training.PATIENCE)
    assert (done.returncode, done.stdout) == (0, b"half")


def test_exception_that_was_printed_is_reported_once(start, bin_dir, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import json, os, traceback\n"
        "print('before')\n"
        "try:\n"
        "    raise ValueError('no luck')\n"
        "except ValueError:\n"
        "    with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as f:\n"
        "        info = {'py_callstack': traceback.format_exc(), 'timestamp': '0'}\n"
        "        json.dump({'message': {'message': 'no luck', 'extraInfo': info}}, f)\n"
        "    raise\n")
    ctrun = start(bin_dir / "ctrun", "--no-python", sys.executable, script)
    assert ctrun.wait() == 1
    report = ctrun.err()[ctrun.err().index("Root Cause"):]
    assert report.count("ValueError: no luck") == 1
    assert "last lines:\n    before\n---" in report


def test_exception_comes_before_the_end_of_a_rank_that_missed_its_peer(start, bin_dir, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import json, os, sys, time\n"
        f"flag = '{tmp_path}/failed'\n"
        "if os.environ['RANK'] == '0':\n"
        "    while not os.path.exists(flag):\n"
        "        time.sleep(0.01)\n"
        "    time.sleep(0.1)  # longer than the tick by which files are dated\n"
        "    sys.exit(4)  # lost its peer\n"
        "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as f:\n"
        "    json.dump({'message': 'no luck'}, f)\n"
        "open(flag, 'w').close()\n"
        "while True:\n"
        "    time.sleep(1)  # takes its time to go\n")
    ctrun = start(bin_dir / "ctrun", "--nproc-per-node=2", "--no-python", sys.executable, script)
    assert ctrun.wait() == 1
    report = ctrun.err()[ctrun.err().index("Root Cause"):]
    assert "rank      : 1" in report and "no luck" in report


def test_killed_rank_comes_before_its_echo_though_its_children_hold_up_the_news(
        start, bin_dir, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, socket, subprocess, time\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "if os.environ['RANK'] == '0':\n"
        "    loaders = [subprocess.Popen(['sleep', '100']) for _ in range(8)]\n"
        f"    s.bind('{tmp_path}/bound')\n"
        "    s.listen()\n"
        f"    os.rename('{tmp_path}/bound', '{tmp_path}/peer')\n"
        "    peer = s.accept()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"while not os.path.exists('{tmp_path}/peer'):\n"
        "    time.sleep(0.01)\n"
        f"s.connect('{tmp_path}/peer')\n"
        "try:\n"
        "    s.recv(1)\n"
        "finally:\n"
        "    os._exit(3)  # at once\n")
    err = ""
    for _ in range(20):  # until rank 1 has ended before it is told to stop
        (tmp_path / "peer").unlink(missing_ok=True)
        ctrun = start(bin_dir / "ctrun", "--nproc-per-node=2", "--no-python", sys.executable, script)
        assert ctrun.wait() == 137, ctrun.err()
        err = ctrun.err()
        if "rank 1 (local_rank: 1)" in err:
            break
    assert "rank 1 (local_rank: 1)" in err  # also failed, as it says


def test_ctrun_in_a_ctrun_hands_its_first_cause_on(start, bin_dir, tmp_path):
    inner = [bin_dir / "ctrun", "--nproc-per-node=2", bin_dir / "fake-worker",
             "--on", "rank=1", "error=ValueError: deep", "--on", "rank=1", "exit=7", "hang"]
    ctrun = start(bin_dir / "ctrun", *inner,
                  env={**os.environ, "TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")})
    assert ctrun.wait() == 7
    outer = ctrun.err()[ctrun.err().index("ctrun FAILED"):]
    assert "rank      : 0 " in outer and "traceback : ValueError: deep\n" in outer
    message = json.loads((tmp_path / "error.json").read_text())["message"]
    assert (message["message"], message["errorCode"]) == ("ValueError: deep", 7)


def test_error_file_tells_of_a_rank_without_a_word_and_of_ctruns_own_mistakes(
        start, bin_dir, tmp_path):
    env = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")}

    def error(code, *words):
        assert start(bin_dir / "ctrun", *words, env=env).wait() == code
        return json.loads((tmp_path / "error.json").read_text())["message"]

    killed = error(137, bin_dir / "fake-worker", "err=out of cheese", "signal=9")
    assert "rank 0" in killed["message"] and "(SIGKILL)" in killed["message"]
    assert "out of cheese" in killed["extraInfo"]["py_callstack"]
    assert killed["errorCode"] == -9
    assert "not-there" in error(2, "./not-there")["message"]


@pytest.mark.parametrize("options, program, words", [
    ((), "./not-there", "No such file"),
    (("--no-python",), "./not-there", "No such file"),
    (("--no-python",), "./plain.sh", "chmod +x"),
    ((), "./plain.sh", "chmod +x"),
    (("--no-python",), "./folder", "no file"),
    (("--no-python",), "./empty", "neither a binary (ELF) nor a script"),
    ((), "./lost.sh", "/not/there"),
])
def test_program_that_cannot_run_is_a_mistake(start, bin_dir, tmp_path, options, program, words):
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain.sh").write_text("#!/bin/sh\necho up\n")
    (tmp_path / "lost.sh").write_text("#!/not/there\necho up\n")
    (tmp_path / "lost.sh").chmod(0o755)
    (tmp_path / "empty").touch(mode=0o755)
    ctrun = start(bin_dir / "ctrun", "--max-restarts=3", *options, program, cwd=tmp_path)
    assert ctrun.wait() == 2
    assert len(ctrun.err().splitlines()) == 1
    assert program in ctrun.err() and words in ctrun.err()


@pytest.mark.parametrize("broken", ["closed", "full"])
def test_stdout_that_takes_nothing_is_said_once_and_the_job_goes_on(bin_dir, tmp_path, broken):
    if broken == "closed":
        reader, out = os.pipe()
        os.close(reader)
    else:
        out = os.open("/dev/full", os.O_WRONLY)
    logs = tmp_path / "logs"
    done = subprocess.run([bin_dir / "ctrun", "--nproc-per-node=2", f"--log-dir={logs}",
                           bin_dir / "fake-worker", "print=one", "print=two"],
                          stdout=out, stderr=subprocess.PIPE, text=True, timeout=training.PATIENCE)
    os.close(out)
    assert done.returncode == 0
    assert done.stderr.count("stdout takes nothing more") == 1, done.stderr
    assert "log files only" in done.stderr
    files = sorted(logs.rglob("stdout.log"))
    assert [f.read_text() for f in files] == ["one\ntwo\n"] * 2


def test_folder_that_cannot_be_made_is_said_once(start, bin_dir, tmp_path):
    """Not once for each of the ranks."""
    ctrun = start(bin_dir / "ctrun", "--nproc-per-node=3", bin_dir / "fake-worker", "print=up",
                  env={**os.environ, "TMPDIR": str(tmp_path / "nowhere")})
    assert ctrun.wait() == 0, ctrun.err()
    assert ctrun.out() == "up\n" * 3
    assert ctrun.err().count("no folder for the workers' error files") == 1
    assert ctrun.err().count("no folder for the workers' output") == 1


def test_log_dir_of_the_engine_is_not_made(train, bin_dir, tmp_path):
    logs = tmp_path / "logs"
    ctrun = train(tmp_path / "run", "train.steps=1", options=[f"--log-dir={logs}"])
    assert ctrun.wait() == 0, ctrun.err()
    assert not logs.exists()
    assert ctrun.err().count("--log-dir has no effect") == 1


def test_ranks_that_timed_out_are_no_root_cause(train, tmp_path, wait_for):
    run = tmp_path / "run"
    # a loaded machine may stop a rank for a second or two
    ctrun = train(run, "comm.timeout=4", "train.steps=1000000", "checkpoint.every=0",
                  options=["--max-restarts=0"])
    wait_for(lambda: training.last_step(run) > 0 or ctrun.popen.poll() is not None)
    os.kill(training.workers(ctrun.pid)[1], signal.SIGSTOP)
    assert ctrun.wait() == 1
    report = ctrun.err()[ctrun.err().index("===="):]
    assert "Root Cause" not in report and "because of rank" not in report
    assert "communication timed out (exitcode 81)" in report
    assert "stopped because of the others" in report
    assert "none failed by itself" in report and "raise comm.timeout" in report
    assert "restarts: 0 of 0; exit code 1" in report


def options_of(program):
    """The long names in a program's --help."""
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    return re.findall(r"^  (?:-\w, )?--([a-z-]+)", done.stdout, re.MULTILINE)


def test_options_of_ctrun_and_of_its_worker_know_each_others_place(start, bin_dir):
    ours = set(options_of(bin_dir / "ctrun")) - {"help", "version", "dry-run"}  # the worker has these, too
    assert "nproc-per-node" in ours
    for name in ours:
        worker = start(bin_dir / "ctrun-worker", f"--{name}")
        assert worker.wait() == 2
        assert "is an option of ctrun: put it before ctrun-worker" in worker.err(), name


def test_events_are_lines_of_json(start, bin_dir):
    ctrun = start(bin_dir / "ctrun", "--nproc-per-node=2", "--rdzv-id=j", "--event-log-handler=console",
                  bin_dir / "fake-worker", "--on", "rank=0", "exit=3", "hang")
    assert ctrun.wait() == 3
    events = [json.loads(line) for line in ctrun.err().splitlines() if line.startswith("{")]
    assert all(e["metadata"]["run_id"] == "j" for e in events)
    told = [(e["source"], e["metadata"]["global_rank"], e["metadata"]["state"]) for e in events]
    for rank, end in ((0, "FAILED"), (1, "TERMINATED")):  # rank 0 may have failed before 1 started
        assert [state for _, r, state in told[:4] if r == rank] == ["START", end]
    assert told[4:] == [("AGENT", None, "FAILED")]


def test_dry_run_shows_each_worker_as_it_would_be_started(start, bin_dir, tmp_path):
    program = [bin_dir / "fake-worker", "env", "--", "it's ${local_rank}"]
    args = ["--nproc-per-node=2", "--master-port=29876", "--max-restarts=3", f"--log-dir={tmp_path / 'logs'}"]
    dry = start(bin_dir / "ctrun", *args, "--dry-run", "--json", *program)
    assert dry.wait() == 0
    shown = json.loads(dry.out())
    assert (shown["run_id"], shown["endpoint"]) == ("none", "127.0.0.1:29876")
    assert not (tmp_path / "logs").exists()
    real = start(bin_dir / "ctrun", *args, *program[:2])
    assert real.wait() == 0
    started = sorted((json.loads(line) for line in real.out().splitlines()), key=lambda e: e["RANK"])
    for rank, worker in enumerate(shown["workers"]):
        assert (worker["rank"], worker["local_rank"]) == (rank, rank)
        assert worker["command"] == [str(a) for a in program[:3]] + [f"it's {rank}"]
        for name, value in worker["env"].items():
            assert value in (None, started[rank][name]), name
        assert {"RANK", "MASTER_PORT", "TORCHELASTIC_MAX_RESTARTS"} <= worker["env"].keys()
        assert [n for n, v in worker["env"].items() if v is None] == ["TORCHELASTIC_ERROR_FILE", "CTRUN_NODE_ADDR"]
    text = start(bin_dir / "ctrun", *args, "--dry-run", *program)
    assert text.wait() == 0
    assert "rank 1 (local rank 1)\n" in text.out()
    assert "fake-worker env -- 'it'\\''s 1'\n" in text.out()


def test_dry_run_says_what_only_the_start_can_tell(start, bin_dir):
    dry = start(bin_dir / "ctrun", "--nnodes=1:2", "--rdzv-endpoint=node0", "--dry-run", "--json",
                bin_dir / "fake-worker")
    assert dry.wait() == 0
    worker = json.loads(dry.out())["workers"][0]
    assert worker["rank"] is None and worker["env"]["RANK"] is None
    assert worker["env"]["MASTER_ADDR"] is None
    assert worker["env"]["WORLD_SIZE"] == "2"
    mistake = start(bin_dir / "ctrun", "--dry-run", "no-such-program")
    assert mistake.wait() == 2


def test_dry_run_leaves_out_neither_warnings_nor_the_timer_file(bin_dir):
    dry = subprocess.run([bin_dir / "ctrun", "--signals-to-handle=TERM,FOO", "--dry-run", "--json", "/bin/true"],
                         env={**os.environ, "TORCHELASTIC_ENABLE_FILE_TIMER": "1"},
                         capture_output=True, text=True, timeout=training.PATIENCE)
    assert dry.returncode == 0
    assert "left out: FOO" in dry.stderr
    assert json.loads(dry.stdout)["workers"][0]["env"]["TORCHELASTIC_TIMER_FILE"] is None


@pytest.mark.parametrize("options, unknown", [
    (["--master-port=29877", "--store-access=local"], {"MASTER_PORT", "CTRUN_NODE_ADDR"}),
    (["--store-access=direct"], {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "CTRUN_NODE_ADDR"}),
    (["--store-access=direct", "--local-addr=127.0.0.1"], {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}),
], ids=["local", "direct", "local-addr"])
def test_dry_run_shows_no_other_store_than_there_will_be(start, bin_dir, options, unknown):
    program = [bin_dir / "fake-worker", "env"]
    dry = start(bin_dir / "ctrun", *options, "--dry-run", "--json", *program)
    real = start(bin_dir / "ctrun", *options, *program)
    assert (dry.wait(), real.wait()) == (0, 0)
    shown = json.loads(dry.out())["workers"][0]["env"]
    started = json.loads(real.out())
    assert {n: v for n, v in shown.items() if v not in (None, started[n])} == {}
    assert {n for n, v in shown.items() if v is None} == unknown | {"TORCHELASTIC_ERROR_FILE"}


@pytest.mark.parametrize("options", [["--help"], ["--version"], ["--print-completion=scdoc"],
                                     ["--dry-run", "--nproc-per-node=32", "--json", "/bin/true"]])
def test_what_cannot_be_printed_is_a_failure(bin_dir, options):
    with open("/dev/full", "w") as full:
        done = subprocess.run([bin_dir / "ctrun", *options], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=training.PATIENCE)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "stdout does not take all of it" in done.stderr


COMPLETE = """
eval "$1"
while read -ra COMP_WORDS; do
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _ctrun
    echo "${COMPREPLY[@]}"
done
"""


def test_bash_completes_options_and_values_up_to_the_program(bin_dir):
    script = subprocess.run([bin_dir / "ctrun", "--print-completion=bash"], capture_output=True, text=True, check=True)
    lines = {  # bash takes the '=' for a word
        "ctrun --nproc": "--nproc-per-node",
        "ctrun --rdzv-backend = st": "static",
        "ctrun --nnodes 2 --nproc-per-node a": "auto",
        "ctrun --nnodes = 2 -m --max-r": "--max-restarts",
        "ctrun --log-dir /us": "/usr",
        "ctrun --nnodes 2 train.py --max-r": "",
    }
    done = subprocess.run(["bash", "-c", COMPLETE, "bash", script.stdout], input="\n".join(lines) + "\n",
                          capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(lines.values())


def test_run_path_runs_the_script_by_runpy(start, bin_dir, tmp_path):
    (tmp_path / "a.py").write_text("import sys; print(__name__, sys.argv[1:], sys.argv[0][-4:])\n")
    ctrun = start(bin_dir / "ctrun", "--run-path", tmp_path / "a.py", "x", "-c")
    assert ctrun.wait() == 0
    assert ctrun.out() == "__main__ ['x', '-c'] a.py\n"


@pytest.mark.parametrize("python, words", [
    ("/nope", "PYTHON_EXEC=/nope: no such file"),
    ("python-9", "PYTHON_EXEC=python-9: no such program in PATH"),
])
def test_interpreter_that_is_not_there_is_a_mistake(start, bin_dir, tmp_path, python, words):
    (tmp_path / "train.py").write_text("print('up')\n")
    ctrun = start(bin_dir / "ctrun", "--max-restarts=3", "train.py", cwd=tmp_path,
                  env={**os.environ, "PYTHON_EXEC": python})
    assert ctrun.wait() == 2
    assert ctrun.out() == "" and len(ctrun.err().splitlines()) == 1 and words in ctrun.err()


@pytest.mark.parametrize("address, words", [
    ("203.0.113.9", "no interface of this host has the address 203.0.113.9"),
    ("no-such-host.invalid", "no-such-host.invalid does not resolve"),
])
@pytest.mark.parametrize("options", [(), ("--nnodes=2", "--rdzv-endpoint=127.0.0.1:1")])
def test_local_addr_of_another_host_is_a_mistake(start, bin_dir, address, words, options):
    ctrun = start(bin_dir / "ctrun", f"--local-addr={address}", *options, "/bin/true")
    assert ctrun.wait() == 2
    assert len(ctrun.err().splitlines()) == 1 and words in ctrun.err()


def test_local_addr_may_be_a_name(two_hosts, bin_dir, start, tmp_path):
    """Each host takes its own name for 127.0.1.1, as Debian's, the other's for its address."""
    agents = []
    for rank, (name, _) in enumerate(two_hosts):
        hosts = tmp_path / f"hosts{rank}"
        hosts.write_text(f"127.0.1.1 node{rank}\n{two_hosts[1 - rank][1]} node{1 - rank}\n")
        agents.append(start(
            "ip", "netns", "exec", name, "unshare", "-m", "sh", "-c", IN_HOST, "sh", hosts,
            bin_dir / "ctrun", "--nnodes=2", f"--node-rank={rank}", f"--local-addr=node{rank}",
            f"--rdzv-endpoint={two_hosts[1][1]}:29400", "--no-python", sys.executable, "-c", MEET,
            os.path.dirname(__file__)))
    assert [a.wait() for a in agents] == [0, 0], [a.err() for a in agents]
    assert [a.out() for a in agents] == [f"{two_hosts[0][1]} met\n"] * 2


def test_local_addr_that_is_the_name_of_another_host_is_a_mistake(
    two_hosts, bin_dir, start, tmp_path
):
    (tmp_path / "hosts").write_text(f"{two_hosts[1][1]} node1\n")
    ctrun = start("ip", "netns", "exec", two_hosts[0][0], "unshare", "-m", "sh", "-c", IN_HOST,
                  "sh", tmp_path / "hosts", bin_dir / "ctrun", "--local-addr=node1", "/bin/true")
    assert ctrun.wait() == 2
    assert len(ctrun.err().splitlines()) == 1
    assert "no interface of this host has the address node1" in ctrun.err()


def test_local_addr_that_no_other_host_can_reach_is_a_mistake(bin_dir, start, tmp_path):
    (tmp_path / "hosts").write_text("127.0.1.1 node0\n")
    ctrun = start("unshare", "-n", "-m", "sh", "-c", f"ip link set lo up && {IN_HOST}", "sh",
                  tmp_path / "hosts", bin_dir / "ctrun", "--nnodes=2", "--local-addr=node0",
                  "--rdzv-endpoint=127.0.0.1:1", "/bin/true")
    assert ctrun.wait() == 2
    assert len(ctrun.err().splitlines()) == 1
    assert "node0 is loopback on this host" in ctrun.err()


def test_flags_of_torchrun_that_have_no_effect_are_taken(start, bin_dir):
    ctrun = start(bin_dir / "ctrun", "--monitor-interval=0.1", "--start-method=spawn",
                  bin_dir / "fake-worker", "print=up")
    assert (ctrun.wait(), ctrun.out(), ctrun.err()) == (0, "up\n", "")


# --- the endpoint ---


STRANGER = """
import socket, sys
s = socket.create_server((sys.argv[1], 4))
while True:
    s.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2p1\\r\\n")
"""


@pytest.fixture
def endpoint_where(two_hosts, start, wait_for):
    """endpoint_where(what) is one, seen from the first host, where that is so."""
    (_, here), (host, there) = two_hosts

    def find(what):
        if what == "no name":
            return "no-such-host.invalid:4"
        if what == "silence":  # what the other host answers goes nowhere
            subprocess.run(["ip", "-n", host, "route", "add", "blackhole", here], check=True)
        elif what == "a stranger":
            start("ip", "netns", "exec", host, sys.executable, "-c", STRANGER, there)
            wait_for(lambda: there in subprocess.check_output(
                ["ip", "netns", "exec", host, "ss", "-Hltn"], text=True))
        return f"{there}:4"

    return find


@pytest.mark.parametrize("nodes, what, why", [
    ("1", "no name", "no-such-host.invalid does not resolve"),
    ("2", "nobody", "Connection refused, nothing listens there yet"),
    ("2", "silence", "no answer; is the host up, and does no firewall drop it?"),
    ("2", "a stranger", "does not speak ctrun's protocol"),
])
def test_nobody_answers_one_line_then_94(two_hosts, endpoint_where, bin_dir, start, nodes, what, why):
    endpoint = endpoint_where(what)
    ctrun = start("ip", "netns", "exec", two_hosts[0][0], bin_dir / "ctrun", f"--nnodes={nodes}",
                  f"--rdzv-endpoint={endpoint}", "--rdzv-conf=join_timeout=4", "/bin/true")
    assert ctrun.wait() == 94
    waiting = [line for line in ctrun.err().splitlines() if "waiting for" in line]
    assert len(waiting) == 1 and endpoint in waiting[0] and why in waiting[0]
    assert len(ctrun.err().splitlines()) == 2 and why in ctrun.err().splitlines()[1]


MEET = """
import os, sys
sys.path.insert(0, sys.argv[1])
import store_client as sc
rank, addr = os.environ["RANK"], os.environ["MASTER_ADDR"]
with sc.Client(int(os.environ["MASTER_PORT"]), addr) as c:
    c.set("rank" + rank, b"here")
    for other in "01":
        c.send(sc.request(sc.WAIT, ["rank" + other]))
        assert c.read(1) == b"\\0"
print(addr, "met")
"""

IN_HOST = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


def start_on(start, tmp_path, rank, host, names, *command):
    """As start, on one of two_hosts, where /etc/hosts has these `names`."""
    hosts = tmp_path / f"hosts{rank}"
    hosts.write_text("".join(f"{address} {name}\n" for name, address in names.items()))
    return start("ip", "netns", "exec", host, "unshare", "-m", "sh", "-c", IN_HOST, "sh", hosts,
                 *command)


@pytest.mark.parametrize("has_default_route", [True, False])
def test_own_name_on_loopback_is_reached_by_the_other_node(
    two_hosts, bin_dir, start, tmp_path, has_default_route
):
    """Debian's /etc/hosts: the first node takes its own name for 127.0.1.1."""
    agents = []
    for rank, (name, _) in enumerate(two_hosts):
        if has_default_route:
            subprocess.run(["ip", "-n", name, "route", "add", "default", "via",
                            two_hosts[1 - rank][1]], check=True)
        names = {"node0": "127.0.1.1" if rank == 0 else two_hosts[0][1]}
        agents.append(start_on(
            start, tmp_path, rank, name, names, bin_dir / "ctrun", "--nnodes=2",
            f"--node-rank={rank}", "--rdzv-endpoint=node0:29400", "--no-python", sys.executable,
            "-c", MEET, os.path.dirname(__file__)))
    assert [a.wait() for a in agents] == [0, 0], [a.err() for a in agents]
    assert "serving the rendezvous on all addresses" in agents[0].err()
    assert [a.out() for a in agents] == [f"{two_hosts[0][1]} met\n"] * 2


def test_the_articles_command_makes_one_world_of_two_hosts(two_hosts, bin_dir, start, tmp_path):
    """As it stands in articles about torchrun, with only that word replaced."""
    script = tmp_path / "train.py"
    script.write_text("import os, sys\n"
                      "print(*(os.environ[k] for k in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR')),\n"
                      "      *sys.argv[1:])\n")
    names = {f"node{rank}": address for rank, (_, address) in enumerate(two_hosts)}
    agents = [
        start_on(start, tmp_path, rank, host, names, bin_dir / "ctrun", "--nnodes=2",
                 "--nproc_per_node=2", "--rdzv_id=12345", "--rdzv_backend=c10d",
                 "--rdzv_endpoint=node0:29500", script, "--config-path=configs",
                 "--config-name=base.yaml")
        for rank, (host, _) in enumerate(two_hosts)]
    assert [a.wait() for a in agents] == [0, 0], [a.err() for a in agents]
    said = sorted(line.split() for a in agents for line in a.out().splitlines())
    assert len({line[2] for line in said}) == 1 and said[0][2] in names.values()
    assert [line[:2] + line[3:] for line in said] == [
        [str(rank), "4", "--config-path=configs", "--config-name=base.yaml"]
        for rank in range(4)]


@pytest.mark.parametrize("own", ["127.0.1.1", "its address"])
def test_each_node_that_names_itself_as_the_endpoint_is_told(
    two_hosts, bin_dir, start, tmp_path, wait_for, own
):
    agents = []
    for rank, (host, address) in enumerate(two_hosts):
        names = {f"node{rank}": own if own[0].isdigit() else address,
                 f"node{1 - rank}": two_hosts[1 - rank][1]}
        agents.append(start_on(start, tmp_path, rank, host, names, bin_dir / "ctrun", "--nnodes=2",
                               "--rdzv-id=12345", f"--rdzv-endpoint=node{rank}:29500",
                               "--no-python", "/bin/true"))
    for rank, agent in enumerate(agents):
        wait_for(lambda a=agent: "waiting for 1 more of 2 nodes" in a.err())
        assert f"this node hosts the rendezvous at node{rank}:29500 itself, and nobody else " \
            "has joined job 12345: --rdzv-endpoint and --rdzv-id must be the same on all nodes" \
            in agent.err()
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 128 + signal.SIGTERM
