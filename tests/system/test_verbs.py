"""The operator's verbs: ctrun status, ps, events, logs, cancel, drain, history."""

import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import threading

import pytest
import training
from agent_client import agent_frame

HOST = socket.gethostname()


@pytest.fixture
def env(tmp_path):
    """Servers and operators of this test see each other's sockets, and nobody else's."""
    return {**os.environ, "CTRUN_SOCKET_DIR": str(tmp_path / "run"), "TMPDIR": str(tmp_path),
            "CTRUN_ENDPOINT": ""}


@pytest.fixture
def ask(bin_dir, env):
    """ask("status", code=0) runs the verb to its end: what it printed on stdout, else on stderr.

    Without a network, unless it needs one: others' servers may be at the default endpoint."""

    def run(*args, code=0, **more):
        needs_net = os.geteuid() != 0 or "127.0.0.1" in str((args, more))
        before = [] if needs_net else ["unshare", "-n"]
        done = subprocess.run([*before, bin_dir / "ctrun", *args], env={**env, **more}, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        assert done.returncode == code, (args, done)
        return done.stdout if code in (0, 4) else done.stderr

    return run


@pytest.fixture
def ask_json(ask):
    return lambda *args: json.loads(ask(*args, "--json"))


@pytest.fixture
def follow(start, bin_dir, env):
    """A verb that goes on."""
    return lambda *args: start(bin_dir / "ctrun", *args, env=env)


@pytest.fixture
def launch(start, bin_dir, env, wait_for):
    """launch(name, *actions): a job of fake workers that have done all but the last action."""

    def run(name, *actions, nproc=2, options=()):
        return start(bin_dir / "ctrun", f"--rdzv-id={name}", f"--nproc-per-node={nproc}",
                     *options, bin_dir / "fake-worker", *actions, env=env)

    return run


@pytest.fixture(params=["embedded", "service"])
def options(request, start_server, env, free_port):
    """Of a job whose rendezvous is inside ctrun, or a ctrun-rendezvous."""
    port = start_server(env=env).ports[0] if request.param == "service" else free_port
    return [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d"]


@pytest.fixture
def run_jobs(launch, bin_dir, env, wait_for):
    """Starts a job, and waits until the servers say that it runs."""

    def run(name, *actions, **kwargs):
        job = launch(name, *actions, **kwargs)

        def runs():
            assert job.popen.poll() is None, job.err()
            done = subprocess.run([bin_dir / "ctrun", "status", name, "--json"], env=env,
                                  capture_output=True, timeout=60)
            return done.returncode == 0 and b'"state":"running"' in done.stdout

        wait_for(runs)
        return job

    return run


def test_jobs_and_ranks_are_shown(run_jobs, ask, ask_json, options):
    run_jobs("train", "hang", options=options)
    (job,) = ask_json("status")["jobs"]
    assert (job["id"], job["nodes"], job["ranks"], job["generation"]) == ("train", 1, 2, 1)
    (same,) = ask_json("status", "train")["jobs"]
    assert [n["host"] for n in same["nodes_list"]] == [HOST]
    ranks = ask_json("ps")["ranks"]
    assert [(r["rank"], r["local_rank"], r["job"]) for r in ranks] == [
        (0, 0, "train"), (1, 1, "train")]
    table = ask("status").splitlines()
    assert table[0].split()[:3] == ["JOB", "STATE", "GEN"]
    assert table[1].split()[:3] == ["train", "running", "1"]
    assert len(table) == 2  # a ctrun-rendezvous at the default port, too, is asked once
    assert len(ask("ps").splitlines()) == 3
    facts = ask("status", "train")
    assert re.search(r"^state +running$", facts, re.M) and HOST in facts


def test_logs_are_read_through_the_agents(run_jobs, ask, options, wait_for):
    run_jobs("train", "print=out %r", "err=err %r", "hang", options=options)
    wanted = sorted(f"[{r}] {what} {r}" for r in (0, 1) for what in ("out", "err"))
    wait_for(lambda: sorted(ask("logs").splitlines()) == wanted)
    assert sorted(ask("logs", "train", "-r1").splitlines()) == ["err 1", "out 1"]
    line = json.loads(ask("logs", "--rank=1", "--json").splitlines()[0])
    assert line == {"generation": 1, "rank": 1, "stream": "stdout", "text": "out 1"}
    assert "no rank 2: it has 2" in ask("logs", "-r", "2", code=3)


@pytest.mark.threads
def test_logs_are_followed_to_the_last_word_over_a_restart(run_jobs, follow, options, wait_for,
                                                           tmp_path):
    go = tmp_path / "go"
    job = run_jobs("train", "print=begin %g", f"wait={go}", "print=last word %g",
                   "err=farewell %g", "--on", "gen=1", "exit=3", "--on", "gen=2", "exit=4",
                   nproc=1, options=[*options, "--max-restarts=1"])
    logs = follow("logs", "-f", "train")
    wait_for(lambda: "begin 1\n" in logs.out())
    go.touch()
    assert job.wait() == 4
    assert logs.wait() == 0, logs.err()
    assert sorted(logs.out().splitlines()) == sorted(
        f"[0] {what} {g}" for what in ("begin", "last word", "farewell") for g in (1, 2))


def test_of_much_that_a_rank_says_at_its_end_the_last_is_told(run_jobs, follow, options, wait_for,
                                                              tmp_path):
    go = tmp_path / "go"
    job = run_jobs("train", "print=begin", f"wait={go}", "flood=8000000", "print=", "print=last word",
                   "exit=4", nproc=1, options=options)
    logs = follow("logs", "-f", "--rank=0", "train")
    wait_for(lambda: "begin\n" in logs.out())
    go.touch()
    assert job.wait() == 4
    assert logs.wait() == 0, logs.err()
    assert logs.out().splitlines()[-2:] == ["", "last word"]
    assert re.search(r"rank 0 has said \d+ bytes more before this: they are in its log file", logs.err())


@pytest.mark.threads
def test_short_generations_behind_much_are_all_followed(run_jobs, follow, options, wait_for,
                                                        tmp_path):
    go, last = tmp_path / "go", 5
    job = run_jobs("train", "print=begin %g", f"wait={go}", "--on", "gen=1", "flood=3000000",
                   "print=", "print=dying %g", "exit=3", nproc=1,
                   options=[*options, f"--max-restarts={last - 1}"])
    logs = follow("logs", "-f", "train")
    wait_for(lambda: "begin 1\n" in logs.out())
    go.touch()
    assert job.wait() == 3
    assert logs.wait() == 0, logs.err()
    told = [line for line in logs.out().splitlines() if "begin" in line or "dying" in line]
    assert told == [f"[0] {what} {g}" for g in range(1, last + 1) for what in ("begin", "dying")]
    assert "log files only" not in logs.err()


def test_large_logs_come_whole_and_rotated_ones_in_order(run_jobs, ask, wait_for, tmp_path):
    done = tmp_path / "done"
    run_jobs("big", "flood=3000000", f"touch={done}", "hang", nproc=1, options=[
        f"--log-dir={tmp_path}/logs", "--log-max-size=2M", "-r3"])
    wait_for(done.exists)

    def on_disk():
        files = sorted(tmp_path.glob("logs/*/attempt_1/0/stdout.log*"), reverse=True)
        assert len(files) <= 2  # stdout.log.1 was there before stdout.log
        return "".join(f.read_text() for f in files)

    wait_for(lambda: len(on_disk()) >= 2999000)
    lines = ask("logs", "--rank=0").splitlines()
    assert lines == on_disk().splitlines()
    last = ask("logs", "--rank=0", "--last").splitlines()
    assert lines[-len(last):] == last and 0 < len(last) < len(lines)


def test_events_are_followed_to_the_jobs_end(run_jobs, ask, follow, env, options, wait_for,
                                             tmp_path):
    go = tmp_path / "go"
    job = run_jobs("train", f"wait={go}", "exit=5", options=options)
    events = follow("events", "-f", "--json", "train")
    (sock,) = os.listdir(env["CTRUN_SOCKET_DIR"])
    of_all = follow("events", "-f", f"--endpoint={env['CTRUN_SOCKET_DIR']}/{sock}")
    wait_for(lambda: '"formed"' in events.out() and "formed" in of_all.out())
    assert "train" in ask("status", f"--endpoint={env['CTRUN_SOCKET_DIR']}/")  # its folder
    assert "no server has its socket in this folder" in ask("status", f"--endpoint={tmp_path}",
                                                            code=94)
    go.touch()
    assert job.wait() == 5
    wait_for(lambda: "exit code 5" in of_all.out())
    assert events.wait() == 0, events.err()
    kinds = [json.loads(line)["kind"] for line in events.out().splitlines()]
    assert kinds[0] == "node_joined" and "formed" in kinds and kinds[-1] == "failed"


def test_a_job_is_cancelled_on_all_its_nodes(launch, ask, ask_json, start_server, env, wait_for):
    port = start_server(env=env).ports[0]
    options = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d",
               "--max-restarts=3"]
    nodes = [launch("train", f"on={signal.SIGTERM}:0", "print=up", "hang", nproc=1, options=options)
             for _ in range(2)]
    wait_for(lambda: all("up" in n.out() for n in nodes))
    assert ask("cancel", "train") == "job train is being cancelled: its workers save and end\n"
    assert [n.wait() for n in nodes] == [143, 143]
    for node in nodes:
        told, ended = node.err().index("job train is cancelled by"), node.err().index(
            "job train was cancelled by")
        assert told < ended and "told the workers, which have " in node.err()[told:ended]
    (past,) = ask_json("history")["jobs"]
    assert (past["id"], past["state"], past["exit_code"]) == ("train", "cancelled", 143)
    assert "cancelled by" in past["cause"]["text"]
    assert "train" in ask("history", "train")
    assert "cancelled" in ask("status", "train", code=4)
    assert "nothing to do" in ask("cancel", code=3)
    events = [json.loads(line) for line in ask("events", "--json").splitlines()]
    assert any(e["kind"] == "operator" and "cancelled by" in e["text"] for e in events)


def test_a_job_that_waits_for_nodes_is_cancelled(launch, ask, start_server, env, wait_for):
    port = start_server(env=env).ports[0]
    node = launch("train", "hang", options=["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{port}",
                                            "--rdzv-backend=c10d"])
    wait_for(lambda: "train" in ask("status"))
    assert ask("cancel", "train") == "job train was cancelled\n"
    assert node.wait() == 143


def test_a_node_is_drained_and_the_rest_goes_on(launch, ask, ask_json, follow, start_server, env,
                                                wait_for):
    port = start_server(env=env).ports[0]
    options = ["--nnodes=1:2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d"]
    nodes = []
    for rank in range(2):
        nodes.append(launch("train", "print=up %g", f"on={signal.SIGTERM}:0", "hang", nproc=1,
                            options=[*options, f"--node-rank={rank}",
                                     "--rdzv-conf=last_call_timeout=60"]))
    wait_for(lambda: all("up" in n.out() for n in nodes))
    assert "was told to leave" in ask("drain", "1", "train")
    assert nodes[1].wait() == 0, nodes[1].err()
    wait_for(lambda: "up 2" in nodes[0].out())
    (job,) = ask_json("status", "train")["jobs"]
    assert (job["nodes"], job["failures"]) == (1, 0)
    assert "has a node 7" in ask("drain", "7", "train", code=3)
    ask("status", "train")
    followed = [follow(verb, "-f", "train") for verb in ("events", "logs")]
    wait_for(lambda: all("up" in f.out() or "started" in f.out() for f in followed))
    ask("drain", "0", "train")
    assert nodes[0].wait() == 0, nodes[0].err()
    assert [f.wait() for f in followed] == [0, 0]  # it does not go on
    assert "stopped" in followed[0].out()
    assert re.search(r"^state +stopped, \d+ s ago$", ask("status", "train", code=4), re.M)  # not done


def test_of_a_host_with_several_nodes_all_are_drained_when_that_is_said(launch, ask, start_server,
                                                                       env, wait_for):
    port = start_server(env=env).ports[0]
    actions = ["print=up", f"on={signal.SIGTERM}:0", "hang"]
    one = [launch("one", *actions, nproc=1, options=[
        "--nnodes=2", f"--node-rank={rank}", f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-backend=c10d"]) for rank in range(2)]
    two = launch("two", *actions, nproc=1)  # a server of its own
    wait_for(lambda: all("up" in n.out() for n in (*one, two)) and ask("status").count("running") == 2)
    said = ask("drain", HOST, code=2)
    for node in ("node 0 ({}) of job one", "node 1 ({}) of job one", "node 0 ({}) of job two"):
        assert node.format(HOST) in said
    assert "--all" in said and len(said.splitlines()) == 1
    assert ask("drain", HOST, "two") == f"node 0 ({HOST}) of job two was told to leave\n"
    assert two.wait() == 0, two.err()
    assert "of job two" not in ask("drain", HOST, code=2)
    assert ask("drain", HOST, "--all").count("was told to leave") == 2
    assert [n.wait() for n in one] == [0, 0]
    for rank in range(2):
        assert f"node {HOST} (group rank {rank}) is drained by " in ask("events", "one")


def test_rate_of_new_connections_is_none_of_this_machines_operators(start_server, ask, env):
    start_server("--accept-rate=1", env=env)
    assert len([ask("status", "--endpoint=" + env["CTRUN_SOCKET_DIR"]) for _ in range(20)]) == 20


def test_of_two_jobs_one_is_named(run_jobs, ask, ask_json, free_port):
    first = run_jobs("one", "hang", options=[f"--rdzv-endpoint=127.0.0.1:{free_port}"])
    second = run_jobs("two", "hang")
    assert sorted(j["id"] for j in ask_json("status")["jobs"]) == ["one", "two"]
    assert len({j["server"] for j in ask_json("status")["jobs"]}) == 2
    for verb in ("cancel", "logs"):
        assert "name one" in ask(verb, code=2)
    assert "several servers" in ask("events", "-f", code=2)
    ask("cancel", "two")
    assert second.wait() == 143
    assert [j["id"] for j in ask_json("status")["jobs"]] == ["one"]
    ask("cancel")
    assert first.wait() == 143


def test_who_reads_no_more_ends_what_is_followed(run_jobs, bin_dir, env, ask):
    run_jobs("train", "print=up", "hang", nproc=1)
    for args in (["events", "-f"], ["logs", "-f"]):
        verb = subprocess.Popen([bin_dir / "ctrun", *args, "train"], env=env, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert verb.stdout.readline()
        verb.stdout.close()  # and nothing more happens
        assert verb.wait(60) == 1 and verb.stderr.read() == ""
    with open("/dev/full", "w") as full:
        done = subprocess.run([bin_dir / "ctrun", "status"], env=env, stdout=full, text=True,
                              stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and "stdout does not take all of it" in done.stderr


@pytest.mark.soak
@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("way", ["tcp", "socket"])
def test_who_pauses_misses_nothing(run_jobs, start, start_server, bin_dir, env, wait_for, tmp_path,
                                   way, follow):
    """As `ctrun logs -f train | less` does: for longer than an agent may leave us unread."""
    done, go = tmp_path / "done", tmp_path / "go"
    port = start_server(env=env).ports[0]
    run_jobs("train", "flood=8000000", f"touch={done}", f"wait={go}", nproc=1, options=[
        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d"])
    wait_for(done.exists)
    more = {**env, "CTRUN_ENDPOINT": f"127.0.0.1:{port}"} if way == "tcp" else env
    verb = f"{bin_dir}/ctrun logs {'-f' if follow else ''} --rank=0 train"
    reader = start("bash", "-c", f"set -o pipefail; {verb} | (head -c 1000; sleep 17; cat)",
                   env=more)
    wait_for(lambda: len(reader.out()) >= 7999000 or reader.popen.poll() is not None)
    go.touch()
    assert reader.wait() == 0 and reader.err() == ""
    lines = reader.out().splitlines()
    assert len("\n".join(lines)) + 1 >= 8000000
    assert all(line.startswith(f"rank 0 line {i} ") for i, line in enumerate(lines))


def test_mistakes_have_exit_codes_of_their_own(run_jobs, ask, free_port):
    assert "no server of yours" in ask("status", code=94)
    assert "nobody listens there" in ask("ps", f"--endpoint=127.0.0.1:{free_port}", code=94)
    assert "nobody listens" in ask("ps", code=94, CTRUN_ENDPOINT=f"127.0.0.1:{free_port}")
    assert "which node?" in ask("drain", code=2)
    assert "unknown option --jsn; did you mean --json?" in ask("status", "--jsn", code=2)
    assert "one word too many" in ask("ps", "a", "b", code=2)
    run_jobs("train", "hang")
    for verb in ("status", "ps", "events", "logs", "cancel", "history"):
        assert "no job other" in ask(verb, "other", code=3)
    assert ask("history") == "no job has ended\n"
    assert ask("history", "train").startswith("job train has not ended yet: ctrun status train ")
    assert "usage: ctrun logs [options] [JOB]" in ask("logs", "--help")


def test_a_stranger_is_told_from_a_server(ask):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        child = os.fork()
        if child == 0:
            peer, _ = s.accept()
            peer.recv(4096)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            os._exit(0)
        assert "does not speak ctrun's protocol" in ask("status", f"--endpoint=127.0.0.1:{port}",
                                                        code=94)
        os.waitpid(child, 0)


WELCOME = agent_frame(2, struct.pack("<4QBIIQQBQ", 1, 2, 3, 0, 1, 3000, 0, 0, 0, 0, 0))  # no memory


def answer(body, more, code=0):
    return agent_frame(25, struct.pack("<QBII", 1, more, code, len(body)) + body)


@pytest.fixture
def dying_server():
    """dying_server(*talks): the port of a server that hears something and says the next
    of a talk's words, and after its last ends it."""
    threads = []

    def begin(*talks, listener=None):
        listener = listener or socket.create_server(("127.0.0.1", 0))
        listener.settimeout(training.PATIENCE)
        address = listener.getsockname()

        def serve():
            with listener:
                for answers in talks:
                    peer, _ = listener.accept()
                    with peer:
                        for words in answers:
                            peer.recv(65536)
                            peer.sendall(words)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return address[1]

    yield begin
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("verb, answers, wanted", [
    (("drain", "--all", HOST), [b""], "before it said who it is, and nothing was asked of it"),
    (("drain", HOST), [WELCOME, b""], "may or may not have happened (ctrun events tells)"),
    (("drain", "--all", HOST), [WELCOME, b""], "may or may not have happened (ctrun events tells)"),
    (("cancel", "train"), [b""], "before it said who it is, and nothing was asked of it"),
    (("ps",), [WELCOME, b""], "the connection ended before the answer"),
])
def test_of_a_server_that_ends_in_the_middle_is_said_what_is_known(ask, dying_server, verb, answers,
                                                                   wanted):
    trouble = ask(*verb, f"--endpoint=127.0.0.1:{dying_server(answers)}", code=94)
    assert wanted in trouble and ("may or may not" in wanted or "may or" not in trouble)


@pytest.mark.parametrize("body", [b'{"jobs":[ broken', b"[]", b"7\n"])
@pytest.mark.parametrize("verb", [("status",), ("ps",), ("history",), ("events",), ("cancel",),
                                  ("drain", "--all", HOST), ("logs", "train"),
                                  ("events", "-f", "train")], ids=" ".join)
def test_an_answer_that_nobody_can_read_is_a_failure(ask, dying_server, verb, body):
    talks = [[WELCOME, answer(body, more=0)]]
    if verb[-1] == "train":  # it is asked for the job first
        talks.insert(0, [WELCOME, answer(b'{"jobs": [{"id": "train", "state": "running"}]}', more=0)])
    trouble = ask(*verb, f"--endpoint=127.0.0.1:{dying_server(*talks)}", code=94)
    assert "cannot read what it answered" in trouble and trouble.count("\n") == 1


@pytest.mark.parametrize("verb, words, wanted", [
    ("status", [answer(b"broken", more=0)], "cannot read what it answered"),
    ("ps", [answer(b'{"ranks":[{}', more=1), answer(b"ask again", more=0, code=94)], "ask again"),
], ids=["unreadable", "half"])
def test_of_several_servers_one_that_nobody_can_read_is_named(bin_dir, start_server, dying_server,
                                                              env, verb, words, wanted):
    start_server(env=env)
    path = f"{env['CTRUN_SOCKET_DIR']}/{os.getpid()}-7.sock"
    dying_server([WELCOME, b"".join(words)],
                 listener=socket.create_server(path, family=socket.AF_UNIX))
    done = subprocess.run([bin_dir / "ctrun", verb], env=env, text=True, capture_output=True)
    assert done.returncode == 0 and (verb == "ps" or "no jobs" in done.stdout)
    assert wanted in done.stderr and path in done.stderr


def test_which_node_is_drained_the_server_decides_with_the_deed(ask, dying_server):
    """It is asked once: between two questions another node of the host might come."""
    nodes = [{"job": job, "host": HOST, "group_rank": 0} for job in ("one", "two")]
    several, gone = (json.dumps(a).encode() for a in ({"meant": nodes}, {"nodes": nodes[:1]}))
    port = dying_server([WELCOME, answer(several, more=0)])
    said = ask("drain", HOST, f"--endpoint=127.0.0.1:{port}", code=2)
    assert all(f"node 0 ({HOST}) of job {job}" in said for job in ("one", "two"))
    port = dying_server([WELCOME, answer(gone, more=0)])
    assert ask("drain", HOST, f"--endpoint=127.0.0.1:{port}").count("was told to leave") == 1


@pytest.mark.soak
def test_who_read_nothing_for_minutes_is_told_why_it_ended(start, bin_dir, env, dying_server):
    line = json.dumps({"generation": 1, "rank": 0, "stream": "stdout", "text": "x" * 1000}) + "\n"
    body = (line * 200).encode()
    status = b'{"jobs": [{"id": "train", "state": "running"}]}'
    port = dying_server([WELCOME, answer(status, more=0)],
                        [WELCOME, answer(body, more=1)])
    verb = f"{bin_dir}/ctrun logs -f train --endpoint=127.0.0.1:{port}"
    reader = start("bash", "-c", f"set -o pipefail; {verb} | (sleep 62; cat)", env=env)
    assert reader.wait(90) == 94
    assert "maybe since nobody read what is printed here for 6" in reader.err()
    assert reader.out().count("x" * 1000) == 200


def test_a_program_may_have_a_verbs_name(start, bin_dir, env, tmp_path):
    script = tmp_path / "status"
    script.write_text("#!/bin/sh\necho a program\n")
    script.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    job = start(bin_dir / "ctrun", "run", "--no-python", "status", env={**env, "PATH": path})
    assert job.wait() == 0 and job.out() == "a program\n"


def test_a_folder_that_is_not_ours_alone_is_refused(run_jobs, ask, env, launch, wait_for):
    folder = env["CTRUN_SOCKET_DIR"]
    os.mkdir(folder)
    os.chmod(folder, 0o755)
    job = launch("train", "print=up", "hang")
    wait_for(lambda: "up" in job.out() and "mode 0755" in job.err())
    assert os.listdir(folder) == []
    if os.geteuid() == 0:
        os.chmod(folder, 0o700)
        os.chown(folder, 65534, 65534)
        assert "owner 65534" in ask("status", code=94)


def test_the_socket_goes_with_its_server(run_jobs, ask, env, wait_for):
    folder = env["CTRUN_SOCKET_DIR"]
    job = run_jobs("train", "hang")
    assert len(os.listdir(folder)) == 1
    assert os.stat(folder).st_mode & 0o777 == 0o700
    job.signal(signal.SIGTERM)
    job.wait()
    assert os.listdir(folder) == []
    job = run_jobs("train", "hang")
    job.kill_group()
    assert len(os.listdir(folder)) == 1
    ask("status", code=94)
    assert os.listdir(folder) == []


def test_nothing_wild_reaches_a_terminal(run_jobs, bin_dir, env, wait_for, ask):
    run_jobs("train", "print=\033]0;owned\007 tr\u202emain %r", "hang", nproc=1)
    wait_for(lambda: "owned" in ask("logs"))

    def on_terminal(*args):
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(bin_dir / "ctrun", ["ctrun", *args], {**env, "NO_COLOR": "1", "TERM": "xterm"})
        text = b""
        while True:
            try:
                chunk = os.read(fd, 65536)
            except OSError:
                chunk = b""
            if not chunk:
                break
            text += chunk
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, text
        return text.decode()

    for verb in ("status", "ps", "events", "logs", "history"):
        text = on_terminal(verb)
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", text), (verb, text)
    assert "owned? tr?main" in on_terminal("logs")


def test_colours_are_for_terminals_that_want_them(run_jobs, bin_dir, env, ask):
    run_jobs("train", "hang", nproc=1)
    assert "\033" not in ask("status", TERM="xterm")
    for no_color, wanted in (("", True), ("1", False)):
        done = subprocess.run(["script", "-qec", f"{bin_dir}/ctrun status", "/dev/null"],
                              env={**env, "TERM": "xterm", "NO_COLOR": no_color},
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        assert (b"\033[32mrunning\033[0m" in done.stdout) == wanted, done


def test_who_has_a_secret_sees_the_jobs_that_were_begun_with_it(start_server, launch, ask, env,
                                                               wait_for, tmp_path):
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("one", "two", "operator", "stranger"):
        folder = tmp_path if name == "stranger" else secrets
        (folder / name).write_text(f"{name}-" + "x" * 40)
        (folder / name).chmod(0o600)
    port = start_server(f"--secrets={secrets}", env=env).ports[0]
    jobs = [launch(name, "print=up", "hang", nproc=1, options=[
        f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d", "--nnodes=1:2",
        "--rdzv-conf=last_call_timeout=1", f"--rdzv-secret-file={secrets / name}"])
        for name in ("one", "two")]
    wait_for(lambda: all("up" in j.out() for j in jobs))
    there = f"--endpoint=127.0.0.1:{port}"

    def seen(name, **kwargs):
        text = ask("status", "--json", there, f"--rdzv-secret-file={secrets / name}", **kwargs)
        return [j["id"] for j in json.loads(text)["jobs"]]

    assert seen("one") == ["one"] and seen("two") == ["two"]
    assert seen("operator") == ["one", "two"]
    for args in ([], [f"--rdzv-secret-file={tmp_path / 'stranger'}"]):
        assert ask("status", there, *args, code=94)
    key = f"--rdzv-secret-file={secrets / 'one'}"
    assert "no job two" in ask("cancel", "two", there, key, code=3)
    assert [j["id"] for j in json.loads(ask("status", "--json"))["jobs"]] == ["one", "two"]
    ask("cancel", "one", there, key)
    assert jobs[0].wait() == 143
    for name, past in (("one", ["one"]), ("two", []), ("operator", ["one"])):
        text = ask("history", "--json", there, f"--rdzv-secret-file={secrets / name}")
        assert [j["id"] for j in json.loads(text)["jobs"]] == past
    ask("cancel")  # by the socket, where this user needs no key
    assert jobs[1].wait() == 143


def test_followers_of_one_owner_keep_nobody_else_out(start_server, follow, ask, env, wait_for,
                                                     tmp_path):
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("alice", "bob", "operator"):
        (secrets / name).write_text(f"{name}-" + "x" * 40)
        (secrets / name).chmod(0o600)
    there = f"--endpoint=127.0.0.1:{start_server(f'--secrets={secrets}', env=env).ports[0]}"
    key = f"--rdzv-secret-file={secrets}/"
    followers = [follow("events", "-f", there, f"{key}alice") for _ in range(17)]
    wait_for(lambda: any(f.popen.poll() is not None for f in followers))
    (refused,) = [f for f in followers if f.popen.poll() is not None]
    assert refused.wait() == 94
    assert "16 operators with this key (secret alice) are here already" in refused.err()
    for args in ([], [there, f"{key}bob"], [there, f"{key}operator"]):
        ask("status", *args)


def test_who_comes_from_elsewhere_without_a_key_is_turned_away(start, bin_dir, env, tmp_path):
    """Another address of the machine stands for another machine, in a network of our own."""
    ask = f"{bin_dir}/ctrun status --endpoint=192.0.2.9:29400"
    script = f"""
        set -eu
        ip link set lo up
        ip addr add 192.0.2.9/32 dev lo
        {bin_dir}/ctrun --nnodes=1:2 --rdzv-id=far --rdzv-conf=last_call_timeout=1 \\
            --rdzv-endpoint=192.0.2.9:29400 {bin_dir}/fake-worker touch={tmp_path}/up hang &
        until [ -e {tmp_path}/up ]; do sleep 0.05; done
        for i in 1 2; do
            {ask} && exit 1 || [ $? = 94 ]
        done
        {bin_dir}/ctrun status far >&2
        {bin_dir}/ctrun cancel far >&2
        wait $! || exit $?
    """
    job = start("unshare", "-n", "sh", "-c", script, env=env)
    assert job.wait() == 143, job.err()
    text = job.err()
    assert text.count("from this server's own machine only") == 3  # twice there, once in the log
    assert text.count("refused a connection peer=192.0.2.9") == 1
