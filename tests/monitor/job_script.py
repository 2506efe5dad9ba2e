"""A small real job that a test leads step by step: it does what each line on its stdin says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PROGRAM = """
import os, subprocess, sys, time
spin = "import time\\nwhile time.process_time() < {}: pass\\nprint('spun', flush=True)\\nimport sys; sys.stdin.read()"
kept = []
def child(seconds):
    process = subprocess.Popen([sys.executable, "-S", "-c", spin.format(seconds)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    return process
def do(word, argument):
    if word == "spin":
        end = time.process_time() + float(argument)
        while time.process_time() < end: pass
    elif word == "child":            # spins, ends, is waited for
        child(argument).communicate()
    elif word == "keep":             # spins, lives on
        kept.append(child(argument))
    elif word == "end":              # all that were kept end
        for process in kept: process.communicate()
    elif word == "orphan":           # its parent is gone at once; prints its pid
        code = ("import os, sys, time\\n"
                "if os.fork() == 0:\\n"
                "    if sys.argv[1] == 'own-session': os.setsid()\\n"
                "    print(os.getpid(), flush=True)\\n"
                "    time.sleep(60)\\n")
        done = subprocess.Popen([sys.executable, "-S", "-c", code, argument], stdout=subprocess.PIPE)
        pid = done.stdout.readline().decode().strip()
        done.wait()
        return pid
    return sum(os.times()[:4])
for line in sys.stdin:
    print(do(*line.split()), flush=True)
"""


class Job:
    """The job's process and the conversation with it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def do(self, word: str, argument: object = "0") -> float:
        """Returns when it is done: CPU seconds of the job so far, itself and children that it waited for."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word} {argument}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


@contextmanager
def running_job() -> Iterator[Job]:
    """A job in a session of its own that has answered once."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    job = Job(process)
    try:
        job.do("ready")
        yield job
    finally:
        process.kill()
        process.communicate()
