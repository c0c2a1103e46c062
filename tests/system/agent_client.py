"""The agent protocol's beginning, by hand (common/msg.h)."""

import struct

MAGIC = b"ctrunA1\n"


def agent_frame(kind, payload):
    return struct.pack("<IB", 1 + len(payload), kind) + payload


def agent_hello(version):
    def text(t):
        return struct.pack("<I", len(t)) + t.encode()

    return agent_frame(
        1,
        struct.pack("<H", version) + text("job") + struct.pack("<5QiIIQ", 7, 0, 0, 0, 0, -1, 0, 0, 0)
        + text("") + text("host") + struct.pack("<4IiIB", 1, 1, 1, 0, -1, 1000, 0),
    )
