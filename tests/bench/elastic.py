"""An elastic job of two agents on this machine: its start, the loss of one, its return; beside
torchrun, which is waited for no longer than PATIENCE_S."""

import contextlib
import os
import signal
import socket
import time

from measure import Failed, Roll, Row, background, descendants, free_port, kill, median, text_of

PATIENCE_S = 10  # it took 32 s to start one node, and never heard of a lost one


class Job:
    """Agents of one job; each worker says that it runs."""

    def __init__(self, launcher, ctx, stack, nodes="1:2"):
        self.ctx = ctx
        self.stack = stack
        self.roll = stack.enter_context(Roll(ctx.scratch))
        self.port = free_port()
        self.command = [
            *launcher, f"--nnodes={nodes}", "--nproc-per-node=1", "--rdzv-id=bench",
            "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}",
            *(["--no-python"] if ctx.torch in launcher else []),
            ctx.bin / "fake-worker", f"pid={self.roll.path}", "hang"]

    def agent(self):
        return self.stack.enter_context(background(self.command, self.ctx.scratch))

    def pair(self):
        """Two that run; the first has the endpoint."""
        first = self.agent()
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            if time.monotonic() > end:
                raise Failed(f"nobody serves the endpoint of {text_of(self.command)}")
            time.sleep(0.005)
        second = self.agent()
        self.roll.next(2, second)
        time.sleep(0.1)  # let them come to rest
        return first, second

    def until(self, n, act, limit_s=None):
        """Seconds from act() until `n` more workers run; None: they did not within the limit."""
        began = time.perf_counter()
        process = act()
        if limit_s is not None and not self.roll.has(n, limit_s):
            return None
        self.roll.next(n, process)
        return time.perf_counter() - began


def kill_node(agent):
    """kill -9 of an agent with its workers, as when its machine goes."""
    below = descendants(agent.pid)
    agent.kill()
    kill(below)
    return agent


def times_of(launcher, ctx, nodes, measure):
    with contextlib.ExitStack() as stack:
        job = Job(launcher, ctx, stack, nodes)
        return measure(job), text_of(job.command)


def start_alone(job):
    return job.until(1, job.agent)


def start_fixed(job):
    job.agent()
    time.sleep(0.1)
    return job.until(2, job.agent)


def lose(job, limit_s=None):
    _, second = job.pair()
    return job.until(1, lambda: kill_node(second), limit_s)


def lose_and_return(job):
    return lose(job), job.until(2, job.agent)


def silence_and_return(job):
    _, second = job.pair()

    def send(number):
        os.kill(second.pid, number)
        return second

    return (job.until(1, lambda: send(signal.SIGSTOP)),
            job.until(2, lambda: send(signal.SIGCONT)))


def bounded(launcher, ctx, measure):
    """Their seconds, or the bound, and which of the two it is."""
    seconds, command = times_of(launcher, ctx, "1:2", measure)
    if seconds is None:
        return PATIENCE_S, command, f"torchrun: not in {PATIENCE_S} s"
    return seconds, command, "torchrun"


def elastic(ctx):
    """Seconds until workers run, after what happens to an elastic job."""
    launcher = [ctx.bin / "ctrun"]
    n = ctx.count(5, 1)

    def repeat(measure, nodes="1:2"):
        runs = [times_of(launcher, ctx, nodes, measure) for _ in range(n)]
        return [seconds for seconds, _ in runs], runs[0][1]

    alone, command = repeat(start_alone)
    losses, _ = repeat(lose_and_return)
    silences, _ = repeat(silence_and_return)
    fixed, fixed_command = repeat(start_fixed, "2")
    how = f"median of {n}"
    theirs = their_loss = (None, "", "")
    if ctx.torch:
        torchrun = [ctx.torch, "-m", "torch.distributed.run"]
        theirs = bounded(torchrun, ctx, lambda job: job.until(1, job.agent, PATIENCE_S))
        their_loss = bounded(torchrun, ctx, lambda job: lose(job, PATIENCE_S))
    for what, ours, limit, (their, their_command, against) in (
        ("--nnodes=1:2 with one node → it runs", alone, 3.5, theirs),
        ("… a node of two killed → the other runs", [a for a, _ in losses], 1, their_loss),
        ("… and back → both run", [b for _, b in losses], None, (None, "", "")),
        ("… a node of two silent → the other runs", [a for a, _ in silences], 6,
         (None, "", "")),
        ("… and awake → both run", [b for _, b in silences], None, (None, "", "")),
    ):
        yield Row(what, "s", "lower", median(ours), command, how, against, their, their_command,
                  limit=limit)
    yield Row("--nnodes=2, the second node comes → both run", "s", "lower", median(fixed),
              fixed_command, how, limit=0.5)
    if not ctx.torch:
        yield ctx.no_torch("an elastic job, against torchrun")
