"""An old PyTorch (1.13, Debian 12's) and its own store, recorded: ours gives the same answers.

tests/torch/record_session.py made the recording; tests/torch has the same with the real one."""

import json
import os
import pathlib
import socket
import sys

SESSION = pathlib.Path(__file__).resolve().parents[1] / "torch/fixtures/torch-1.13.session"


def replay(host, port):
    """Says what the two ranks said; how many answers were as recorded."""
    lines = [json.loads(line) for line in SESSION.read_text().splitlines()]
    # of each rank a second connection, which stays silent
    connections = [socket.create_connection((host, port), timeout=300)
                   for _ in range(2 + max(number for number, _, _ in lines))]
    n = 0
    for number, who, text in lines:
        data = bytes.fromhex(text)
        if who == "client":
            connections[number].sendall(data)
            continue
        got = b""
        while len(got) < len(data):
            more = connections[number].recv(len(data) - len(got))
            assert more, f"closed in place of {text}, the {n}th answer"
            got += more
        assert got == data, (n, got.hex(), text)
        n += 1
    for connection in connections:
        connection.close()
    return n


def test_service_answers_as_recorded(start_server):
    assert replay("127.0.0.1", start_server().port) == 45


def test_agents_answer_as_recorded(start, bin_dir):
    ctrun = start(bin_dir / "ctrun", "--no-python", sys.executable, __file__)
    assert (ctrun.wait(), ctrun.out()) == (0, "45\n"), ctrun.err()


if __name__ == "__main__":
    print(replay(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
