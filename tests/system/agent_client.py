"""The agent protocol's beginning, by hand (common/msg.h)."""

import re
import struct
from pathlib import Path

MAGIC = b"ctrunA1\n"
HEADER = Path(__file__).parents[2] / "common" / "msg.h"


def agent_frame(kind, payload):
    return struct.pack("<IB", 1 + len(payload), kind) + payload


def text(t):
    return struct.pack("<I", len(t.encode())) + t.encode()


def agent_hello(version):
    return agent_frame(
        1,
        struct.pack("<H", version) + text("job") + struct.pack("<7QiIIQ", 7, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0)
        + text("") + text("host") + struct.pack("<4IiIB", 1, 1, 1, 0, -1, 1000, 0),
    )


def operator_asks(who, verb, job):
    """OPERATOR and ASK, of this version."""
    version = int(re.search(r"MSG_VERSION = (\d+)", HEADER.read_text())[1])
    ask = (struct.pack("<Q", 1) + text(verb) + text(job) + text("") + struct.pack("<iBQQ", -1, 0, 0, 0)
           + text(""))  # places
    return agent_frame(23, struct.pack("<H", version) + text(who)) + agent_frame(24, ask)
