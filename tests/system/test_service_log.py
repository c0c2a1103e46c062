"""What ctrun-rendezvous says of its jobs."""

import fcntl
import os
import re
import signal
import socket
import subprocess

import pytest


@pytest.fixture
def run_job(start, bin_dir, start_server):
    """run_job(script, code, *options): a service, and a job that ends; the service's lines."""

    def run(script, code, *options, level="info", name="j7"):
        server = start_server(f"--log-level={level}")
        job = start(
            bin_dir / "ctrun", "--nproc-per-node=2", f"--rdzv-id={name}", "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{server.port}", *options, "--no-python",
            "/bin/sh", "-c", script,
        )
        assert job.wait() == code, job.err()
        return [line for line in server.process.err().splitlines() if "job" in line]

    return run


def test_a_job_that_ends_well_is_formed_and_done(run_job):
    assert run_job("exit 0", 0) == [
        "ctrun-rendezvous: job formed job=j7 generation=1 nodes=1 ranks=2",
        "ctrun-rendezvous: job done job=j7 generation=1",
    ]


def test_a_failure_is_told_with_its_cause(run_job):
    lines = run_job("[ $RANK = 0 ] && sleep 60; exit 7", 7, "--max-restarts=1")
    said = [re.sub(r"on \S+:", "on HOST:", line) for line in lines]
    cause = "rank 1 on HOST: exit code 7;"
    assert said == [
        "ctrun-rendezvous: job formed job=j7 generation=1 nodes=1 ranks=2",
        f'ctrun-rendezvous: job restarting job=j7 generation=1 cause="{cause} restarting (1 of 1)"',
        "ctrun-rendezvous: job formed job=j7 generation=2 nodes=1 ranks=2",
        f'ctrun-rendezvous: job failed job=j7 generation=2 exit_code=7 cause="{cause} not '
        'restarting: --max-restarts=1 is used up"',
    ]


def test_a_job_that_all_nodes_have_left_is_stopped(run_job):
    tell_agent = 'read -r _ _ _ ctrun _ < "/proc/$PPID/stat"; kill -TERM "$ctrun"'
    lines = run_job(f"[ $RANK = 1 ] || {{ {tell_agent}; }}; exec sleep 60", 143)
    assert [line.split(" job=")[0] for line in lines] == [
        "ctrun-rendezvous: job formed", "ctrun-rendezvous: job restarting",
        "ctrun-rendezvous: job stopped",
    ]
    assert "preempted by SIGTERM" in lines[-1]


def test_lines_of_the_machine_carry_the_job(run_job):
    lines = run_job("exit 0", 0, level="debug")
    assert any(
        "state machine=job id=j7 from=forming to=running" in line for line in lines
    ), lines


def test_a_jobs_name_makes_up_no_line(run_job):
    name = 'x generation=9" cause="all is well'
    assert run_job("exit 0", 0, name=name) == [
        'ctrun-rendezvous: job formed job="x generation=9\' cause=\'all is well" generation=1 '
        "nodes=1 ranks=2",
        'ctrun-rendezvous: job done job="x generation=9\' cause=\'all is well" generation=1',
    ]


def test_a_service_whose_port_an_agent_has_taken_says_so(start, bin_dir, free_port, wait_for):
    listen = f"--listen=127.0.0.1:{free_port}"
    job = start(
        bin_dir / "ctrun", "--rdzv-id=j7", f"--rdzv-endpoint=127.0.0.1:{free_port}",
        "--rdzv-backend=c10d", "--no-python", "/bin/sh", "-c", "echo runs; sleep 600",
    )
    wait_for(lambda: "runs" in job.out())
    service = start(bin_dir / "ctrun-rendezvous", listen)
    assert service.wait() == 1  # systemd tries again
    assert "an agent of a running job serves here until the job ends" in service.err()
    assert f"(pid {job.pid}): start the service again then" in service.err()


@pytest.mark.skipif(os.getuid() != 0, reason="another user's process: needs root")
def test_who_may_not_look_at_the_agent_asks_it(start, bin_dir, free_port, wait_for):
    listen = f"--listen=127.0.0.1:{free_port}"
    service = start(bin_dir / "ctrun-rendezvous", listen)
    wait_for(lambda: "listening" in service.out())
    other = start(bin_dir / "ctrun-rendezvous", listen, user=65534, group=65534, extra_groups=[])
    assert other.wait() == 1
    assert "another service, or an agent of a running job serves here" in other.err()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        other = start(bin_dir / "ctrun-rendezvous", f"--listen=127.0.0.1:{port}",
                      user=65534, group=65534, extra_groups=[])
        assert other.wait() == 1
        assert "cannot be looked at" in other.err()


def test_a_log_that_nobody_reads_holds_no_job_and_no_end(bin_dir, free_port):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    service = subprocess.Popen([bin_dir / "ctrun-rendezvous", f"--listen=127.0.0.1:{free_port}",
                                "--log-level=debug"], stderr=writer, stdout=subprocess.PIPE)
    os.close(writer)
    try:
        assert b"listening" in service.stdout.readline()
        for i in range(5):  # each says more than 2 KiB
            job = subprocess.run(
                [bin_dir / "ctrun", f"--rdzv-id=j{i}" + 200 * "x", "--rdzv-backend=c10d",
                 "--rdzv-conf=is_host=0", f"--rdzv-endpoint=127.0.0.1:{free_port}", "--no-python",
                 "/bin/sh", "-c", "exit 3"], capture_output=True, timeout=60)
            assert job.returncode == 3, job.stderr
        service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=60) == 0
    finally:
        service.kill()
        service.wait()
        service.stdout.close()
    said = os.read(reader, 1 << 16)
    os.close(reader)
    assert 3000 < len(said) <= 4096  # it was full indeed
