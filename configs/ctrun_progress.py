"""Tells ctrun what a rank does: copy this file beside your script, or put its folder on PYTHONPATH.

    import ctrun_progress as progress

    for step, batch in enumerate(loader, 1):
        progress.step(step, "forward")
        loss = model(batch)
        progress.phase("backward")
        loss.backward()
        with progress.phase("wait"):              # for the other ranks
            dist.all_reduce(...)
        progress.loss(loss.item(), tokens_per_second)
        if step % 1000 == 0:
            with progress.phase("save"):          # takes its time
                torch.save(...)

Then `ctrun ps` shows where each rank is, and a rank that stops while the others wait is found and
named (--on-hang). It needs every rank to report. The first word of a phase has a meaning where it is

    wait, reduce, gather, barrier, sync          the rank waits for others
    start, load, compile, save, eval, sample, end   it takes longer than a step, and nobody worries

A rank that is stopped (kill -STOP) is found without such words; one that computes or sleeps for ever
only if the others say that they wait. Of one that hangs ctrun shows the stack: Python's faulthandler
writes it when ctrun sends SIGRTMAX-7, unless your program handles that signal. Without ctrun all of
this does nothing. It costs a write to a pipe for each call, never waits, and needs nothing but
Python; it works from any thread.
"""

import faulthandler
import os
import signal

_phase = ""
_step = 0
_fd = int(os.environ.get("CTRUN_PROGRESS_FD", "-1"))
if _fd >= 0:
    os.set_blocking(_fd, False)


def _say(line):
    if _fd >= 0:
        try:
            os.write(_fd, (" ".join(line.split()) + "\n").encode("ascii", "replace"))
        except OSError:
            pass  # nobody reads: no reason to stop training


def _offer_stack():
    number = int(signal.SIGRTMAX) - 7  # of Linux, where ctrun is
    if signal.getsignal(number) == signal.SIG_DFL:
        faulthandler.register(number, file=_fd, all_threads=False)
        _say(f"stack {number}")


if _fd >= 0:
    _offer_stack()


def step(number, name=""):
    """This rank begins step `number` (1, 2, …), with this phase of it."""
    global _step, _phase
    _step, _phase = int(number), name
    _say(f"step {_step} {_phase}")


class phase:
    """The rank is in this phase of its step from now on; as a context, until its end."""

    def __init__(self, name):
        self._before = _phase
        step(_step, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        step(_step, self._before)


def loss(value, tokens_per_second=None):
    """The step's loss; for `ctrun ps` and the curve of the status page."""
    speed = "" if tokens_per_second is None else f" {float(tokens_per_second):.0f}"
    _say(f"loss {float(value):.6g}{speed}")
