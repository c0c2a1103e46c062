"""A worker that talks, beside one that floods; for the benchmark of the launcher's output.

    output_peer.py FOLDER BYTES

Rank 1 writes BYTES, in lines of 100, at a gigabyte a second or as fast as it may; the time of the
first is in FOLDER/flooding. Rank 0 waits for that, then does its own work, a line after every tenth
of a millisecond of it; how many seconds that took is in FOLDER/seconds.
"""

import os
import pathlib
import sys
import time

RATE = 1e9
LINES = 4000
BLOCK = (b"x" * 99 + b"\n") * 2620  # 256 KiB


def flood(folder, size):
    began = time.perf_counter()
    done = 0
    while done < size:
        if done == 0:
            (folder / "flooding").write_text(str(time.time()))
        done += os.write(1, BLOCK[: min(len(BLOCK), size - done)])
        ahead = done / RATE - (time.perf_counter() - began)
        if ahead > 1e-3:
            time.sleep(ahead)


def talk(folder, waits):
    while waits and not (folder / "flooding").exists():
        time.sleep(1e-3)
    began = time.perf_counter()
    for i in range(LINES):
        until = time.process_time() + 1e-4
        while time.process_time() < until:
            pass
        os.write(1, b"step %d of a sibling that has work to do\n" % i)
    (folder / "seconds").write_text(str(time.perf_counter() - began))


def main():
    folder, size = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    if os.environ["RANK"] == "1":
        flood(folder, size)
    else:
        talk(folder, size > 0)


main()
