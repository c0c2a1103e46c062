"""The HTTP port of ctrun-rendezvous: what it shows of a job that runs, to programs, to Prometheus
and, in a real browser, to people; and whom it turns away."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess

import pytest
import training
from agent_client import MAGIC, operator_asks
from browser import Browser
from prometheus_client.parser import text_string_to_metric_families

HOSTILE = "<img src=x onerror=alert(1)>\"'&"
# two reports a second apart: an agent tells of one a second
REPORTS = "for n in 1 2 3; do echo step $n; echo loss $((5 - n)).5 900; sleep 1; done"


class Status:
    def __init__(self, server):
        self.server = server
        self.port = int(re.search(r"status at http://\S+:(\d+)/\n", server.process.out())[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def get(self, path, method="GET", host=None):
        """The response, with its body as `text`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, headers={"Host": host} if host else {})
        response = connection.getresponse()
        response.text = response.read().decode()
        connection.close()
        return response

    def json(self, path):
        response = self.get(path)
        assert response.status == 200, response.text
        return json.loads(response.text)

    def metrics(self):
        """{(name, labels): value}, by a parser that nobody here has written."""
        response = self.get("/metrics")
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(response.text)
            for sample in family.samples
        }


@pytest.fixture
def start_status(start_server, wait_for):
    def begin(*args):
        server = start_server("--http=127.0.0.1:0", *args)
        wait_for(lambda: "status at" in server.process.out())
        return Status(server)

    return begin


@pytest.fixture
def status(start_status):
    return start_status()


@pytest.fixture
def start_job(start, bin_dir, status):
    def begin(script, *options, name="j7"):
        return start(
            bin_dir / "ctrun", "--nproc-per-node=2", f"--rdzv-id={name}", "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{status.server.port}", *options, "--no-python",
            "/bin/sh", "-c", script,
        )

    return begin


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


def job_in(status, wait_for, state, name="j7"):
    """The job once it is in this state."""

    def found():
        jobs = status.json("/api/v1/jobs")["jobs"]
        return next((j for j in jobs if j["id"] == name and j["state"] == state), None)

    return wait_for(found)


# ---- programs ----


def test_a_job_is_shown_while_it_runs_and_after(status, start_job, wait_for, tmp_path):
    go = tmp_path / "go"
    job = start_job(f"while ! [ -e {go} ]; do sleep .05; done")
    shown = job_in(status, wait_for, "running")
    assert (shown["nodes"], shown["ranks"], shown["generation"]) == (1, 2, 1)
    ranks = status.json("/api/v1/jobs/j7/ranks")["ranks"]
    assert [r["rank"] for r in ranks] == [0, 1]
    (node,) = status.json("/api/v1/jobs/j7/nodes")["nodes"]
    assert (node["state"], node["address"], node["host"]) == (
        "running", "127.0.0.1", socket.gethostname(),
    )
    go.touch()
    assert job.wait() == 0, job.err()
    (past,) = wait_for(lambda: status.json("/api/v1/history")["jobs"])
    assert (past["id"], past["state"], past["exit_code"]) == ("j7", "done", 0)
    kinds = [e["kind"] for e in status.json("/api/v1/events?job=j7")["events"]]
    assert kinds == ["node_joined", "formed", "done"]
    assert status.get("/api/v1/jobs/none").status == 404


def test_the_last_step_of_an_engine_is_in_the_history_with_its_loss(
        status, start, bin_dir, corpus, tmp_path, wait_for):
    run_dir = tmp_path / "run"
    job = start(
        bin_dir / "ctrun", "--nproc-per-node=1", "--rdzv-id=j7", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{status.server.port}", bin_dir / "ctrun-worker",
        *training.overrides(corpus, run_dir, "train.steps=40", "checkpoint.every=0", "eval.every=0"),
    )
    assert job.wait() == 0, job.err()
    (past,) = wait_for(lambda: status.json("/api/v1/history")["jobs"])
    last = training.metrics(run_dir)[-1]
    assert (past["step"], past["loss_step"]) == (40, 40) == (last["step"], 40)
    assert past["loss"] == pytest.approx(last["loss"], rel=1e-5)  # six digits are told


def test_losses_are_shown_at_their_steps_and_nowhere_else(status, start_job, wait_for):
    script = ("exec >&$CTRUN_PROGRESS_FD; for n in 1 2 3 4 5 6 7 8; do echo step $n; sleep .3; "
              "[ $((n % 4)) = 0 ] && echo loss $n.5 100; done; exit 0")
    job = start_job(f"[ $RANK = 0 ] || exit 0; {script}")
    assert job.wait() == 0, job.err()
    (past,) = wait_for(lambda: status.json("/api/v1/history")["jobs"])
    assert (past["step"], past["loss"], past["loss_step"]) == (8, 8.5, 8)
    assert status.json("/api/v1/jobs/j7")["curve"] == [[4, 4.5], [8, 8.5]]


def test_a_failure_is_in_the_history_with_its_first_cause(status, start_job, wait_for):
    job = start_job("[ $RANK = 0 ] && sleep 60; exit 7", "--max-restarts=1")
    assert job.wait() == 7, job.err()
    (past,) = wait_for(lambda: status.json("/api/v1/history")["jobs"])
    assert (past["state"], past["exit_code"], past["restarts"]["failure"]) == ("failed", 7, 1)
    assert past["cause"]["rank"] == 1
    assert re.match(r"rank 1 on \S+: exit code 7; not restarting", past["cause"]["text"])
    metrics = status.metrics()
    assert metrics["ctrun_restarts_total", (("cause", "failure"),)] == 1
    assert metrics["ctrun_jobs_ended_total", (("state", "failed"),)] == 1


def test_the_history_survives_the_service(start_status, start, bin_dir, tmp_path, wait_for):
    go, options = tmp_path / "go", [f"--state-dir={tmp_path}/state"]
    status = start_status(*options)
    options.append(f"--listen=127.0.0.1:{status.server.port}")

    def kill():
        status.server.process.popen.kill()
        status.server.process.wait()

    job = start(
        bin_dir / "ctrun", "--nproc-per-node=1", "--rdzv-id=j7", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{status.server.port}", "--no-python", "/bin/sh", "-c",
        "exec >&$CTRUN_PROGRESS_FD; echo step 7; echo loss 4.5 900; echo step 8; "
        f"while ! [ -e {go} ]; do sleep .05; done; echo step 9; echo step 10; exit 7",
    )

    def curve():
        return status.json("/api/v1/jobs/j7").get("curve")

    job_in(status, wait_for, "running")
    wait_for(lambda: curve() == [[7, 4.5]])
    kill()
    status = start_status(*options)
    assert curve() == [[7, 4.5]]
    go.touch()
    assert job.wait() == 7, job.err()
    wait_for(lambda: status.json("/api/v1/history")["jobs"])
    events = status.json("/api/v1/events")["events"]
    assert status.metrics()["ctrun_state_commit_seconds_count", ()] > 0
    kill()
    status = start_status(*options)
    again = status.json("/api/v1/events")["events"]
    assert again[: len(events)] == events
    (begun,) = again[len(events) :]
    assert (begun["kind"], begun["number"]) == ("service_started", len(events) + 1)
    (past,) = status.json("/api/v1/history?job=j7")["jobs"]
    assert (past["exit_code"], past["cause"]["rank"]) == (7, 0)
    assert (past["step"], past["loss_step"]) == (10, 7)
    assert curve() == [[7, 4.5]]
    assert status.get("/readyz").status == 200


def test_health_and_readiness(status):
    assert status.get("/healthz").text == "ok\n"
    assert status.get("/readyz").text == "ready\n"


# ---- Prometheus ----


def test_prometheus_can_read_the_metrics(status, start_job, wait_for):
    start_job("sleep 600", name='x"\\\n'.strip() + HOSTILE)
    name = 'x"\\' + HOSTILE
    job_in(status, wait_for, "running", name)
    with status.server.client() as store:
        store.set("/k", "v")
        assert store.get("/k") == b"v"
    wait_for(lambda: status.metrics()["ctrun_lease_margin_ratio_count", ()] > 1)
    metrics = status.metrics()
    assert metrics["ctrun_jobs", (("state", "running"),)] == 1
    assert metrics["ctrun_job_ranks", (("job", name),)] == 2
    assert metrics["ctrun_connections", (("kind", "agent"),)] == 1
    assert metrics["ctrun_store_operation_seconds_count", (("op", "set"),)] >= 1
    # a heartbeat comes in time: at least half of the lease was left
    assert metrics["ctrun_lease_margin_ratio_bucket", (("le", "0.5"),)] == 0
    assert metrics["process_cpu_seconds_total", ()] > 0
    assert metrics["process_resident_memory_bytes", ()] > 1e6


def test_who_follows_is_counted_as_an_operator(status, start, bin_dir, wait_for):
    start(bin_dir / "ctrun", "events", "-f", f"--endpoint=127.0.0.1:{status.server.port}")
    wait_for(lambda: status.metrics()["ctrun_connections", (("kind", "operator"),)] == 1)
    assert status.metrics()["ctrun_connections", (("kind", "agent"),)] == 0


def test_open_files_are_counted(status):
    pid = status.server.process.popen.pid
    if os.stat(f"/proc/{pid}/fd").st_size == 0:
        pytest.skip("the kernel (before 6.2) does not count them")
    files = status.metrics()["process_open_fds", ()]
    assert files >= len(os.listdir(f"/proc/{pid}/fd")) > 3
    clients = [status.server.client() for _ in range(10)]
    assert all(c.ping() for c in clients)
    assert status.metrics()["process_open_fds", ()] == files + 10
    for c in clients:
        c.close()


def test_what_stores_may_have_is_shown_as_it_is_after_a_reload(start_status, tmp_path, wait_for):
    path = tmp_path / "rendezvous.yaml"
    path.write_text("store_max_mib: 100\n")
    status = start_status("--config", path)
    assert status.metrics()["ctrun_store_max_bytes", ()] == 100 << 20
    path.write_text("store_max_mib: 200\n")
    status.server.process.signal(signal.SIGHUP)
    wait_for(lambda: "changed=store-max-mib\n" in status.server.process.err())
    assert status.metrics()["ctrun_store_max_bytes", ()] == 200 << 20


# ---- people ----


def test_the_page_shows_a_job_and_its_curve(status, start_job, browser, wait_for):
    start_job(f"[ $RANK = 0 ] && {{ {REPORTS}; }} >&$CTRUN_PROGRESS_FD; sleep 600", name="run #1")
    job_in(status, wait_for, "running", "run #1")
    page = browser.open(status.url + "/#job=run%20%231")
    page.until("document.querySelector('#jobs tbody tr')")
    row = page.eval("document.querySelector('#jobs tbody tr').innerText")
    assert re.match(r"run #1\s+running\s", row)
    page.until("+(document.getElementById('curve') || {dataset: {}}).dataset.points >= 3")
    assert page.eval("document.querySelector('#curve path.curve').getAttribute('d').length") > 20
    text = page.eval("document.getElementById('job').innerText")
    assert re.search(r"last checkpoint\s+–", text, re.I)
    assert socket.gethostname() in text
    assert page.eval("document.querySelectorAll('#job table').length") == 2  # nodes, ranks
    assert "formed" in page.eval("document.getElementById('events').innerText")
    assert page.eval("document.title") == "run #1 – ctrun"
    assert not browser.said


def test_what_others_have_named_is_text(status, start_job, browser):
    start_job("sleep 600", name=HOSTILE)
    page = browser.open(status.url)
    page.until("document.querySelector('#jobs tbody td')")
    assert page.eval("document.querySelector('#jobs tbody td').textContent") == HOSTILE
    assert page.eval("document.querySelectorAll('img').length") == 0
    page.eval("document.querySelector('#jobs tbody a').click()")
    page.until("document.getElementById('job-name')")
    assert page.eval("document.getElementById('job-name').textContent") == HOSTILE
    # and what would get in after all has no right to run
    page.eval("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.bad=1>')")
    page.eval("const s = document.createElement('script'); s.textContent = 'window.bad = 2';"
              "document.body.append(s)")
    page.eval("new Promise((done) => setTimeout(done, 100))")
    assert page.eval("window.bad") is None
    assert any("Content Security Policy" in said for said in browser.said)
    browser.said.clear()


def test_what_others_say_turns_no_direction_on_the_page(status, start_job, browser, wait_for):
    job = start_job("sleep 600")
    job_in(status, wait_for, "running")
    with socket.create_connection(("127.0.0.1", status.server.port), 10) as operator:
        operator.sendall(MAGIC + operator_asks("tr\u202emain", "cancel", "j7"))
        while operator.recv(4096):
            pass
    assert job.wait() == 143, job.err()
    page = browser.open(status.url)
    page.until("/tr.main/.test((document.getElementById('events') || {}).textContent)")
    assert "cancelled by tr?main" in page.eval("document.getElementById('events').textContent")


def test_the_page_fits_a_phone_and_knows_the_dark(status, start_job, browser):
    start_job("sleep 600", name="a-name-of-a-job-that-is-rather-long-" * 5)
    page = browser.open("about:blank")
    page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2,
              mobile=True)
    page.call("Page.navigate", url=status.url)
    page.until("document.querySelector('#jobs tbody tr')")
    page.eval("document.querySelector('#jobs tbody a').click()")
    page.until("document.getElementById('job-name')")
    assert page.eval("document.documentElement.scrollWidth <= window.innerWidth")
    colours = []
    for scheme in ["light", "dark"]:
        page.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        colours.append(page.eval("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 255)", "rgb(15, 18, 22)"]


def test_the_page_says_when_nobody_answers(start_status, browser):
    status = start_status()
    page = browser.open(status.url)
    page.until("document.body.dataset.refreshed")
    assert page.eval("document.getElementById('alert').hidden")
    status.server.process.popen.kill()
    page.until("!document.getElementById('alert').hidden")
    assert "No answer" in page.eval("document.getElementById('alert').textContent")
    browser.said.clear()  # of connections refused


# ---- strangers ----


def test_a_page_of_a_foreign_name_gets_nothing(start_status):
    status = start_status("--http-name=status.example")
    for host, code in [
        ("evil.example", 421), (f"evil.example:{status.port}", 421), ("status.example", 200),
        (socket.gethostname(), 200), (f"[::1]:{status.port}", 200), ("localhost", 200),
    ]:
        assert status.get("/metrics", host=host).status == code, host


def test_nothing_can_be_changed(status):
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"]:
        response = status.get("/api/v1/jobs", method=method)
        assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    response = status.get("/api/v1/jobs", method="HEAD")
    assert (response.status, response.text) == (200, "")
    assert "Access-Control-Allow-Origin" not in response.headers


def test_slow_and_greedy_clients_cost_themselves_alone(status):
    slow = [socket.create_connection(("127.0.0.1", status.port)) for _ in range(64)]
    for s in slow:
        s.sendall(b"GET / HT")
    assert status.get("/healthz").status == 200  # the oldest made room
    greedy = socket.create_connection(("127.0.0.1", status.port))
    greedy.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 150)
    assert status.get("/healthz").status == 200
    for s in [greedy, *slow]:  # after 5 s, whatever they have
        s.settimeout(60)
        try:
            while s.recv(1 << 20):
                pass
        except ConnectionResetError:
            pass  # what it had sent was not read
        s.close()
    assert status.get("/healthz").status == 200


def test_requests_may_come_in_pieces_and_together(status):
    with socket.create_connection(("127.0.0.1", status.port)) as s:
        one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for i in range(len(one)):
            s.sendall(one[i : i + 1])
        s.sendall(one + one.replace(b"healthz", b"readyz") + one.replace(b"1.1", b"1.0"))
        heard = b""
        while more := s.recv(65536):
            heard += more
    assert re.findall(rb"\r\n\r\n(\w+)\n", heard) == [b"ok", b"ok", b"ready", b"ok"]


def test_a_port_that_is_taken_is_named(status, bin_dir):
    result = subprocess.run(
        [bin_dir / "ctrun-rendezvous", "--listen=127.0.0.1:0", f"--http=127.0.0.1:{status.port}"],
        capture_output=True, text=True, timeout=60,
    )
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "--http: " in result.stderr and f"port {status.port}" in result.stderr
    assert "ctrun-rendezvous" in result.stderr


def test_a_status_that_others_can_read_says_so(start_server, bin_dir):
    server = start_server("--http=0.0.0.0:0", "--http-open")
    assert server.process.err().count("whoever can connect may read the status") == 1
    server = start_server("--http=127.0.0.1:0")
    assert "may read the status" not in server.process.err()


def test_without_the_option_nothing_is_served(server):
    assert "status at" not in server.process.out()
