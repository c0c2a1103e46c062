"""What the cases about stores share: clients, and the two kinds of stores they are put to."""

import contextlib
import datetime
import re
import signal
import subprocess


def seconds(n):
    return datetime.timedelta(seconds=n)


def store(port, timeout=60, world_size=None, **kwargs):
    """A client of the server; with a world size it counts itself in (init/)."""
    import torch.distributed as dist

    args = ("127.0.0.1", port) if world_size is None else ("127.0.0.1", port, world_size)
    kwargs.setdefault("wait_for_workers", world_size is not None)
    return dist.TCPStore(*args, is_master=False, timeout=seconds(timeout), **kwargs)


@contextlib.contextmanager
def raises(kind, pattern):
    try:
        yield
    except kind as e:
        assert re.search(pattern, str(e)), str(e)
    else:
        raise AssertionError(f"no {kind.__name__}")


def dist_error():
    import torch.distributed as dist

    return dist.DistStoreError


def start_service(folder):
    command = [f"{folder}/ctrun-rendezvous", "--listen=127.0.0.1:0", "--log-level=error"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return service, int(re.search(r":(\d+)\n", service.stdout.readline())[1])


def start_agent(folder):
    """The port where the workers of a ctrun find the store; this process is none of them."""
    command = [f"{folder}/ctrun", "--no-python", "/bin/sh", "-c",
               "echo $MASTER_PORT; exec sleep infinity"]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return agent, int(agent.stdout.readline())


STORES = {"service": (start_service, 0), "agent": (start_agent, 128 + signal.SIGTERM)}
