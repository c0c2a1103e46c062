"""Two ranks: the first fails when the second is gone. Alone it has nothing to do."""

import os
import socket
import sys
import time

path = sys.argv[1]
if os.environ["WORLD_SIZE"] == "1":
    sys.exit(0)  # what is left goes on to the end
s = socket.socket(socket.AF_UNIX)
if os.environ["RANK"] == "0":
    s.bind(path)
    s.listen()
    peer, _ = s.accept()
    print("linked", flush=True)
    peer.recv(1)
    os._exit(1)  # as soon as the other is gone
while s.connect_ex(path) != 0:
    time.sleep(0.01)
s.recv(1)
