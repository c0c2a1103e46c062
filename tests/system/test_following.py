"""What operators follow (`ctrun events -f`, `ctrun logs -f`) through a service's restarts."""

import json
import os
import signal
import subprocess

import pytest


class Service:
    """One address, one process after another."""

    def __init__(self, start_server, port, state_dir, env):
        self.start = lambda folder: start_server(
            f"--listen=127.0.0.1:{port}", f"--state-dir={folder}", "--state-reserve-mib=1", env=env)
        self.port, self.state_dir = port, state_dir
        self.begin()

    def begin(self, state_dir=None):
        self.server = self.start(state_dir or self.state_dir)

    def kill(self):
        self.server.process.signal(signal.SIGKILL)
        self.server.process.wait()


@pytest.fixture
def env(tmp_path):
    return {**os.environ, "CTRUN_SOCKET_DIR": str(tmp_path / "run"), "TMPDIR": str(tmp_path),
            "CTRUN_ENDPOINT": ""}


@pytest.fixture
def serve(start_server, tmp_path, free_port, env):
    return lambda state_dir=tmp_path / "state": Service(start_server, free_port, state_dir, env)


@pytest.fixture
def launch(start, bin_dir, env, wait_for):
    """launch(service, program, *arguments): a job of one node with two ranks, that has begun."""

    def run(service, *command, options=()):
        job = start(bin_dir / "ctrun", "--rdzv-id=kept", "--nproc-per-node=2", "--max-restarts=0",
                    f"--rdzv-endpoint=127.0.0.1:{service.port}", *options, *command, env=env)
        wait_for(job.out)
        return job

    return run


@pytest.fixture(params=["tcp", "socket"])
def follow(request, start, bin_dir, env):
    def run(service, verb, *options):
        where = f"--endpoint=127.0.0.1:{service.port}" if request.param == "tcp" else (
            f"--endpoint={env['CTRUN_SOCKET_DIR']}")
        return start(bin_dir / "ctrun", verb, "-f", *options, where, env=env)

    return run


# So slow that a file of 24 KiB is not renamed twice while the service is away.
TALKER = """\
import os, sys, time
i = 0
while not os.path.exists(sys.argv[1]):
    for _ in range(3):
        for stream in (sys.stdout, sys.stderr):
            print(f"line {i} " + i % 7 * 16 * "x", file=stream, flush=True)
        i += 1
    time.sleep(0.02)
for stream in (sys.stdout, sys.stderr):
    print(f"end {i}", file=stream, flush=True)
"""


def check_lines(out):
    """Of both streams of both ranks every line once, in order, to the last."""
    by_stream = {}
    for line in map(json.loads, out.splitlines()):
        assert line.keys() == {"generation", "rank", "stream", "text"}
        by_stream.setdefault((line["rank"], line["stream"]), []).append(line["text"])
    assert len(by_stream) == 4
    for lines in by_stream.values():
        assert lines[-1] == f"end {len(lines) - 1}"
        assert lines[:-1] == [f"line {i} " + i % 7 * 16 * "x" for i in range(len(lines) - 1)]


def numbers_of(out):
    return [json.loads(line)["number"] for line in out.splitlines()]


@pytest.mark.threads
@pytest.mark.parametrize("bound", [None, "24K"])
def test_lines_and_events_come_once_through_restarts(serve, launch, follow, bin_dir, env,
                                                     wait_for, tmp_path, bound):
    """With a bound the files of the lines are renamed meanwhile."""
    service, stop = serve(), tmp_path / "stop"
    (tmp_path / "talker.py").write_text(TALKER)
    job = launch(service, tmp_path / "talker.py", stop, options=[
        f"--log-max-size={bound}", f"--log-dir={tmp_path}/logs"] if bound else [])
    logs, events, of_all = (follow(service, *words, "--json") for words in (
        ("logs", "kept"), ("events", "kept"), ("events",)))

    def more_is_said():
        seen = len(logs.out())
        wait_for(lambda: len(logs.out()) > seen + 80000 and '"formed"' in events.out())

    for i in range(1, 4):
        more_is_said()
        service.kill()
        wait_for(lambda: logs.err().count("looking for the server") == i)
        service.begin()
    more_is_said()
    assert not bound or list(tmp_path.glob("logs/**/stdout.log.1"))
    stop.touch()
    assert job.wait() == 0, job.err()
    assert (logs.wait(), events.wait()) == (0, 0), logs.err() + events.err()
    check_lines(logs.out())
    for one, names in ((events, ["kept"]), (of_all, [])):
        wait_for(lambda: '"done"' in one.out())
        asked = subprocess.run([bin_dir / "ctrun", "events", *names, "--json",
                                f"--endpoint=127.0.0.1:{service.port}"], env=env,
                               capture_output=True, text=True, timeout=60)
        assert numbers_of(one.out()) == numbers_of(asked.stdout)
        lines = one.err().splitlines()
        assert len(lines) == 6 and all("connection is lost" in line for line in lines[::2])
        assert all("the server is back" in line for line in lines[1::2]), lines


@pytest.mark.parametrize("follow", ["tcp"], indirect=True)
def test_another_question_for_the_same_lines_has_all_of_them(serve, launch, follow, bin_dir, env,
                                                             wait_for):
    """After a restart, too, of which the agents keep what they remember of questions."""
    service = serve()
    launch(service, "fake-worker", "print=up", "print=one", "hang")
    followed = follow(service, "logs", "kept")
    wait_for(lambda: followed.out().count("one") == 2)
    service.kill()
    service.begin()

    def ask():
        return subprocess.run([bin_dir / "ctrun", "logs", "kept", "--rank=0",
                               f"--endpoint=127.0.0.1:{service.port}"], env=env, text=True,
                              capture_output=True, timeout=60).stdout

    wait_for(lambda: ask() == "up\none\n")
    assert ask() == "up\none\n"


def test_what_is_followed_ends_with_a_server_without_memory(serve, launch, follow, wait_for):
    service = serve("none")
    launch(service, "fake-worker", "print=up", "hang")
    followed = [follow(service, verb, "kept") for verb in ("logs", "events")]
    wait_for(lambda: "up" in followed[0].out() and "formed" in followed[1].out())
    service.kill()
    for one in followed:
        assert one.wait() == 94
        assert one.err().count("\n") == 1 and "the server has ended" in one.err()


@pytest.mark.parametrize("follow", ["tcp"], indirect=True)
def test_what_is_followed_ends_where_another_cluster_answers(serve, launch, follow, wait_for,
                                                             tmp_path):
    service = serve()
    launch(service, "fake-worker", "print=up", "hang")
    followed = [follow(service, verb, "kept") for verb in ("logs", "events")]
    wait_for(lambda: "up" in followed[0].out() and "formed" in followed[1].out())
    service.kill()
    service.begin(tmp_path / "another")
    for one in followed:
        assert one.wait() == 94
        assert "looking for the server" in one.err()
        assert "another server answers there now" in one.err() and "is back" not in one.err()


@pytest.mark.parametrize("follow", ["tcp"], indirect=True)
def test_of_a_job_that_has_ended_meanwhile_is_said_where_its_lines_are(serve, launch, follow,
                                                                       wait_for, tmp_path):
    """Its agent needs the service to end, and is sooner there than who follows."""
    service, go = serve(), tmp_path / "go"
    job = launch(service, "fake-worker", "print=up", f"wait={go}", "print=last word")
    followed = {verb: follow(service, verb, "kept") for verb in ("logs", "events")}
    wait_for(lambda: "up" in followed["logs"].out() and "formed" in followed["events"].out())
    for one in followed.values():
        one.signal(signal.SIGSTOP)
    service.kill()
    service.begin()
    go.touch()
    assert job.wait() == 0
    for one in followed.values():
        one.signal(signal.SIGCONT)
    assert followed["events"].wait() == 0 and "done" in followed["events"].out()
    assert followed["logs"].wait() == 0
    assert "its logs are where they were told to be" in followed["logs"].err()


@pytest.mark.parametrize("follow", ["tcp"], indirect=True)
def test_what_a_rank_says_first_while_the_service_is_away_is_shown(serve, launch, follow, wait_for,
                                                                   tmp_path):
    """Where the last lines were asked for, too, of which it had none."""
    service, go, said, stop = serve(), *(tmp_path / name for name in ("go", "said", "stop"))
    lines = [f"line {i} {20 * 'x'}" for i in range(1500)]
    job = launch(service, "fake-worker", "--on", "rank=0", "print=up", f"wait={go}",
                 *(f"print={line}" for line in lines), f"touch={said}%r", f"wait={stop}")
    logs = follow(service, "logs", "--last", "--json", "kept")
    wait_for(lambda: "up" in logs.out())
    service.kill()
    go.touch()
    wait_for(lambda: all((tmp_path / f"said{rank}").exists() for rank in (0, 1)))
    service.begin()
    wait_for(lambda: logs.out().count(lines[-1]) == 2)
    stop.touch()
    assert job.wait() == 0
    assert logs.wait() == 0, logs.err()
    told = [json.loads(line) for line in logs.out().splitlines()]
    for rank, before in ((0, ["up"]), (1, [])):
        assert [line["text"] for line in told if line["rank"] == rank] == before + lines


@pytest.mark.soak
@pytest.mark.parametrize("follow", ["tcp", "socket"], indirect=True)
def test_a_service_that_stays_away_is_given_up(serve, launch, follow, wait_for):
    service = serve()
    launch(service, "fake-worker", "print=up", "hang")
    events = follow(service, "events")
    wait_for(lambda: "formed" in events.out())
    service.kill()
    assert events.wait(90) == 94
    assert "the server has not come back waited=60s" in events.err()


def test_who_reads_no_more_is_not_kept_by_a_service_that_is_away(serve, launch, bin_dir, env,
                                                                 wait_for):
    service = serve()
    launch(service, "fake-worker", "print=up", "hang")
    verb = subprocess.Popen(
        [bin_dir / "ctrun", "logs", "-f", "kept", f"--endpoint=127.0.0.1:{service.port}"], env=env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert verb.stdout.readline()
        service.kill()
        assert "looking for the server" in verb.stderr.readline()
        verb.stdout.close()
        assert verb.wait(30) == 1
    finally:
        verb.kill()
        verb.wait()
        verb.stderr.close()
