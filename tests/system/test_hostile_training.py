"""Hostile clients on an agent's store port: the training beside them goes on."""

import contextlib
import pathlib
import re
import signal
import threading

import pytest
import training
from store_client import GET, SET, Client, request

VALUE = bytes(8 << 20)
REQUESTS = 2000


def store_port(agent_pid):
    worker = training.workers(agent_pid)[0]
    environ = pathlib.Path(f"/proc/{worker}/environ").read_bytes().decode()
    return int(re.search(r"(?:^|\0)MASTER_PORT=(\d+)\0", environ)[1])


class Attack:
    """Asks for 16 GB, reads nothing, goes, and comes again."""

    def __init__(self, port):
        self.port = port
        self.n_rounds = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.is_over.set()
        self.thread.join()

    def run(self):
        while not self.is_over.is_set():
            try:
                with Client(self.port, timeout=1.0) as c:
                    c.send(request(SET, "/big", VALUE))
                    c.send(request(GET, "/big") * REQUESTS)
                    self.is_over.wait(0.2)
            except OSError:
                pass  # it is closed, or not read: as it should be
            self.n_rounds += 1


@pytest.mark.parametrize(
    "n_attacks", [1, pytest.param(24, marks=pytest.mark.release_only)]
)
def test_commits_and_the_end_do_not_wait_for_hostile_clients(
    train, start_server, tmp_path, wait_for, n_attacks
):
    run_dir = tmp_path / "run"
    server = start_server()
    run = train(
        run_dir, "train.steps=1000000",
        options=["--rdzv-id=h", "--rdzv-backend=c10d",
                 f"--rdzv-endpoint=127.0.0.1:{server.port}"],
    )

    def newest():
        found = training.checkpoints(run_dir)
        return training.step_of(found[-1]) if found else 0

    wait_for(lambda: newest() > 0)
    attacks = [Attack(store_port(run.pid)) for _ in range(n_attacks)]
    with contextlib.ExitStack() as stack:
        for attack in attacks:
            stack.enter_context(attack)
        wait_for(lambda: all(a.n_rounds >= 2 for a in attacks))
        for _ in range(3):  # a commit takes some requests, two of the agent's messages, an answer
            before, rounds = newest(), attacks[0].n_rounds
            wait_for(lambda: newest() > before and attacks[0].n_rounds > rounds)
        run.signal(signal.SIGTERM)
        assert run.wait() == 128 + signal.SIGTERM, run.err()
    assert newest() == training.last_step(run_dir), run.err()
    assert "lost the rendezvous" not in run.err()
    assert "lost" not in server.process.err()
