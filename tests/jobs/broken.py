"""Breaks the probe from inside, at step 5, in some way; training must not notice. One forked child per way."""

import gc
import os
import signal
import sys

import facts
import loops
import torch


def fail(*_):
    raise RuntimeError("broken on purpose")


def probe():
    """None in the bare run."""
    found = [o for o in gc.get_objects() if type(o).__name__ == "Probe" and type(o).__module__.startswith("_perf")]
    return found[0] if found else None


def broken(sabotage):
    def style():
        model, optimizer, criterion = loops.setup()
        loops.train(model, optimizer, criterion, loops.data(), 5)
        if probe():
            sabotage(probe())
        facts.seed()
        loops.train(model, optimizer, criterion, loops.data(), 30)
        gc.collect()
        torch.save(model, os.devnull)
        return model

    return style


@broken
def arrived(probe):
    type(probe.loop).batch_arrived = fail


@broken
def timeline(probe):
    probe.loop.timeline.spent = None


@broken
def boundary(probe):
    probe.loop.timeline.rows = None


@broken
def recorder(probe):
    probe.recorder.record = fail


@broken
def control(probe):
    probe.recorder.run = "/nonexistent"
    probe.launcher.control = None
    probe.next_tick_ns = 0


@broken
def window(probe):
    probe.windows.make = fail


@broken
def sites(probe):
    probe.sites.here = None


class Alarm(Exception):
    pass


@broken
def signals(probe):
    """A handler of the job that raises while one of our hooks runs."""
    kind = type(probe.loop)
    real = kind.batch_arrived

    def ring(*_):
        raise Alarm

    def arrived(self):
        kind.batch_arrived = real
        signal.raise_signal(signal.SIGALRM)

    signal.signal(signal.SIGALRM, ring)
    kind.batch_arrived = arrived
    model, optimizer, criterion = loops.setup()
    try:
        loops.train(model, optimizer, criterion, loops.data(), 3)
    except Alarm:
        print("alarm reached the job", file=sys.stderr, flush=True)


class Queue:
    """A queue that cannot count."""

    def __init__(self, real):
        self.real = real

    def qsize(self):
        raise NotImplementedError

    def __getattr__(self, name):
        return getattr(self.real, name)


@broken
def queue(probe):
    iterator = iter(loops.data(num_workers=2))
    next(iterator)
    real, iterator._data_queue = iterator._data_queue, Queue(iterator._data_queue)
    next(iterator)
    iterator._data_queue = real


if __name__ == "__main__":
    loops.main(globals())
