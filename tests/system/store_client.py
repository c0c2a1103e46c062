"""TCPStore's wire, by hand: what PyTorch's client sends, and what it never would."""

import os
import re
import socket
import struct

VALIDATE = bytes.fromhex("00cef7853c")
(
    _,
    SET,
    COMPARE_SET,
    GET,
    ADD,
    CHECK,
    WAIT,
    GETNUMKEYS,
    DELETE_KEY,
    APPEND,
    MULTI_GET,
    MULTI_SET,
    CANCEL_WAIT,
    PING,
    QUEUE_PUSH,
    QUEUE_POP,
    QUEUE_LEN,
    LIST_KEYS,
    BARRIER,
) = range(19)


def string(value):
    if isinstance(value, str):
        value = value.encode()
    return struct.pack("<Q", len(value)) + value


def strings(values):
    return struct.pack("<Q", len(values)) + b"".join(string(v) for v in values)


def request(op, *args):
    """bytes and str become strings, lists become vectors, ints become i64."""
    body = b""
    for a in args:
        if isinstance(a, (list, tuple)):
            body += strings(a)
        elif isinstance(a, int):
            body += struct.pack("<q", a)
        else:
            body += string(a)
    return bytes([op]) + body


class Client:
    def __init__(self, port, host="127.0.0.1", validate=True, timeout=300.0):
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if validate:
            self.send(VALIDATE)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def read(self, n):
        data = bytearray()
        while len(data) < n:
            more = self.sock.recv(min(n - len(data), 1 << 20))
            if not more:
                raise EOFError(f"closed after {len(data)} of {n} bytes")
            data += more
        return bytes(data)

    def read_i64(self):
        return struct.unpack("<q", self.read(8))[0]

    def read_string(self):
        return self.read(struct.unpack("<Q", self.read(8))[0])

    def is_closed(self):
        """Waits for the end of the connection; False if something else comes."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    # what a well-behaved client does

    def set(self, key, value):
        self.send(request(SET, key, value))

    def get(self, key):
        self.send(request(GET, key))
        return self.read_string()

    def add(self, key, delta):
        self.send(request(ADD, key, delta))
        return self.read_i64()

    def num_keys(self):
        self.send(request(GETNUMKEYS))
        return self.read_i64()

    def ping(self, nonce=0x01020304):
        data = struct.pack("<I", nonce)
        self.send(bytes([PING]) + data)
        return self.read(4) == data


class Server:
    """A running ctrun-rendezvous: a Process, and the ports that it listens on."""

    def __init__(self, process, ports):
        self.process = process
        self.ports = ports
        self.port = ports[0]

    def client(self, **kwargs):
        return Client(self.port, **kwargs)

    def assert_rss_below(self, limit):
        """Says nothing about sanitizers' builds, which have memory of their own."""
        if self.rss() >= limit:
            with open(f"/proc/{self.process.pid}/exe", "rb") as f:
                text = f.read()
            assert b"__asan_init" in text or b"__tsan_init" in text, self.rss()

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) * 1024

    def n_fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))
