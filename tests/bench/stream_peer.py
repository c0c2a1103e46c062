"""What one TCP connection carries in one direction: the first rank sends, the second receives.

    stream_peer.py send|receive ADDRESS PORT BYTES:COUNT

The receiver listens at ADDRESS. The sender prints a line of JSON: the times from the first byte
of a block to the receiver's word that it has the last.
"""

import json
import socket
import sys
import time

PATIENCE_S = 30


def receive(address, size, count):
    block = memoryview(bytearray(1 << 20))
    with socket.create_server(address) as listener:
        listener.settimeout(PATIENCE_S)
        stream, _ = listener.accept()
    with stream:
        for _ in range(count):
            left = size
            while left:
                left -= stream.recv_into(block[:left])
            stream.sendall(b".")


def connect(address):
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:  # it does not listen yet
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def send(address, size, count):
    block, times = bytes(size), []
    with connect(address) as stream:
        for _ in range(count):
            began = time.perf_counter()
            stream.sendall(block)
            if stream.recv(1) != b".":
                sys.exit("the receiver left")
            times.append((time.perf_counter() - began) * 1e6)
    times.sort()
    print(json.dumps({"what": "stream", "bytes": size, "count": count,
                      "median_us": times[count // 2], "best_us": times[0]}))


role, host, port, series = sys.argv[1:]
numbers = map(int, series.split(":"))
{"send": send, "receive": receive}[role]((host, int(port)), *numbers)
