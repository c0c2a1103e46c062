"""A worker that stores so many keys in its job's store, makes a file, and waits to be killed.

    key_filler.py N FILE
"""

import os
import pathlib
import signal
import socket
import struct
import sys

VALIDATE, MULTI_SET, GETNUMKEYS = bytes.fromhex("00cef7853c"), b"\x0b", b"\x07"


def string(text):
    return struct.pack("<Q", len(text)) + text


with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as s:
    s.sendall(VALIDATE)
    n, at_once = int(sys.argv[1]), 10000
    for first in range(0, n, at_once):
        keys = range(first, min(first + at_once, n))
        s.sendall(MULTI_SET + struct.pack("<Q", len(keys)) + b"".join(
            string(b"/key/%d" % key) + string(b"value %d" % key) for key in keys))
    s.sendall(GETNUMKEYS)  # the agent itself would answer a PING
    assert struct.unpack("<q", s.recv(8, socket.MSG_WAITALL))[0] >= n
    pathlib.Path(sys.argv[2]).touch()
    signal.pause()
