"""A state as a version of ctrun-rendezvous leaves it when it is killed, as SQL: what the test
test_state_older takes over.

    make_state.py SERVICE PROTOCOL > schema-N.sql

SERVICE: that version's ctrun-rendezvous; PROTOCOL: its MSG_VERSION (common/msg.h). Agents are
played by hand: a job that was over, one that failed, and one in its third generation, whose rank
has just failed."""

import pathlib
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time

(HELLO, WELCOME, JOIN, HEARTBEAT, ROUND, STOP, RANK_ENDED, STOPPED, RESUMED, COMMIT, DECISION, PROGRESS,
 STORE, STORE_REPLY, REPORT, CLOSED) = (1, 2, 4, 5, 7, 9, 10, 12, 14, 15, 16, 17, 18, 20, 21, 22)
SET, ADD, QUEUE_PUSH, BARRIER = 1, 4, 14, 18


def text(t):
    return struct.pack("<I", len(t)) + t.encode()


def long_text(t):
    """As TCPStore's wire has it."""
    return struct.pack("<Q", len(t)) + t.encode()


class Agent:
    def __init__(self, port, protocol, job, number, nodes):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(0.3)
        self.number, self.generation, self.seq, self.data = number, 0, 0, b""
        self.socket.sendall(b"ctrunA1\n")
        seen = bytes(8 * (4 if protocol < 7 else 6))  # nothing yet; since 7 start and kept are of it
        self.say(HELLO, struct.pack("<H", protocol) + text(job)
                 + struct.pack("<Q", number) + seen + struct.pack("<iIIQ", -1, 0, 0, 0) + text("")
                 + text(f"node{number}") + struct.pack("<4IiIB", nodes, nodes, 1, 3, -1, 100, 0))
        self.hear(WELCOME)

    def say(self, kind, payload):
        self.socket.sendall(struct.pack("<IB", 1 + len(payload), kind) + payload)

    def frame(self):
        while len(self.data) < 4 or len(self.data) < 4 + struct.unpack("<I", self.data[:4])[0]:
            try:
                more = self.socket.recv(65536)
            except TimeoutError:
                self.say(HEARTBEAT, struct.pack("<Q", 1))
                continue
            if not more:
                raise SystemExit(f"agent {self.number}: the connection has ended")
            self.data += more
        size = 4 + struct.unpack("<I", self.data[:4])[0]
        frame, self.data = self.data[4:size], self.data[size:]
        return frame[0], frame[1:]

    def hear(self, kind):
        while True:
            got, payload = self.frame()
            if got == kind:
                return payload

    def join(self):
        self.say(JOIN, struct.pack("<Q", self.generation) + text("127.0.0.1")
                 + struct.pack("<HI", 4000 + self.number, 0) + text("trainer"))

    def enter(self):
        self.generation = struct.unpack("<Q", self.hear(ROUND)[:8])[0]

    def of_generation(self, kind, payload):
        self.say(kind, struct.pack("<Q", self.generation) + payload)

    def decide(self, kind, payload):
        self.of_generation(kind, payload)
        decision = self.hear(DECISION)
        assert decision[16] == 1, decision

    def resumed(self, run, step):
        self.decide(RESUMED, struct.pack("<QIQ", 1, run, step))

    def commit(self, run, step):
        self.decide(COMMIT, struct.pack("<QIQ", 2, run, step) + text(f"{step:032x}"))

    def progress(self, rank, step):
        self.of_generation(PROGRESS, struct.pack("<IQI", rank, step, 1000) + text("forward")
                           + text(f"{10 / step:.3f}") + struct.pack("<iII", -1, 0, 100 + rank))

    def store(self, op, body, answered=True):
        self.seq += 1
        self.of_generation(STORE, struct.pack("<IQBBI", 1, self.seq, op, 0, len(body)) + body)
        if answered:
            self.hear(STORE_REPLY)

    def ended(self, rank, exit_code, signal, message):
        self.of_generation(RANK_ENDED, struct.pack("<3IiiBBQQQ", rank, 0, 100 + rank, exit_code, signal,
                                                   0, 1, 9, 0, 1700000000000)
                           + text("train.py") + text(f"/logs/{rank}.log") + text(message)
                           + text("its last lines\nand one more") + text("ValueError: no such thing")
                           + text(f"/errors/{rank}.json"))

    def stop(self, done=0):
        self.of_generation(STOPPED, bytes([done]))


def play_over(agent):
    over = agent("over", 1, 1)
    over.join()
    over.enter()
    over.stop(done=1)
    over.hear(CLOSED)
    over.socket.close()
    time.sleep(3)  # its lease ends, and the job is forgotten


def play_failed(agent):
    for number in range(3):
        failed = agent("failed", 2, 1) if number == 0 else failed
        failed.join()
        failed.enter()
        failed.ended(0, 3, 0, "the same each time")
        failed.hear(STOP)
        failed.stop()
    failed.hear(CLOSED)


def play_first_generation(a, b):
    for agent in (a, b):
        agent.join()
    for agent in (a, b):
        agent.enter()
    a.resumed(1, 0)
    a.commit(1, 10)
    for step in range(1, 12):
        a.progress(0, step)
        b.progress(1, step)
        time.sleep(0.05)
    a.commit(1, 20)
    a.ended(0, 1, 0, "Traceback: no such thing")
    b.ended(1, 80, 0, "lost rank 0")
    for agent in (a, b):
        agent.hear(STOP)
        agent.stop()
    for agent in (a, b):
        agent.hear(REPORT)
        agent.join()


def play_lives(agent):
    """Its first generation fails, its second loses a node, and a rank of its third fails."""
    a, b = agent("lives", 3, 2), agent("lives", 4, 2)
    play_first_generation(a, b)
    a.enter()
    b.enter()
    a.resumed(2, 20)
    a.commit(2, 30)
    b.socket.close()
    a.hear(STOP)
    a.stop()
    a.hear(REPORT)
    a.join()
    c = agent("lives", 5, 2)
    c.join()
    a.enter()
    c.enter()
    a.store(SET, long_text("key") + long_text("value"))
    a.store(ADD, long_text("count") + struct.pack("<q", 5))
    a.store(QUEUE_PUSH, long_text("queue") + long_text("first"))
    a.store(QUEUE_PUSH, long_text("queue") + long_text("second"))
    c.store(BARRIER, long_text("barrier") + struct.pack("<q", 9), answered=False)
    c.ended(1, 0, 11, "")
    a.hear(STOP)
    a.store(SET, long_text("last") + long_text("word"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def leave_state(service, protocol, folder):
    port = free_port()
    agents = []

    def agent(job, number, nodes):
        agents.append(Agent(port, protocol, job, number, nodes))
        return agents[-1]

    process = subprocess.Popen([service, f"--listen=127.0.0.1:{port}", f"--state-dir={folder}",
                                "--lease-ms=1000", "--log-level=warn"], stdout=subprocess.PIPE)
    process.stdout.readline()  # it listens
    try:
        play_over(agent)
        play_failed(agent)
        play_lives(agent)
    finally:
        process.kill()
        process.wait()


def dump(path):
    db = sqlite3.connect(path)
    db.isolation_level = None
    if "journal" in [row[0] for row in db.execute("select name from sqlite_schema")]:
        db.execute("delete from journal where id > (select pieces from identity)")  # they mean nothing
    for name in ("application_id", "user_version"):
        print(f"PRAGMA {name} = {db.execute(f'pragma {name}').fetchone()[0]};")
    for line in db.iterdump():
        print(line)


def main():
    service, protocol = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "state"
        leave_state(service, int(protocol), path)
        dump(path / "state.db")


main()
