"""Trains for `steps` steps, then ends in some way: `python endings.py steps how`."""

import os
import signal
import sys
import time

import loops

model, optimizer, criterion = loops.setup()
loops.train(model, optimizer, criterion, loops.data(), int(sys.argv[1]))
how = sys.argv[2]
print("trained", flush=True)
if how == "raise":
    raise KeyError("the end")
if how == "forward":
    model(None)
if how == "exit":
    sys.exit(3)
if how == "_exit":
    os._exit(4)
if how == "delete":
    import shutil

    shutil.rmtree(os.environ.get("PERFDOCTOR_RUN", "/nonexistent"), ignore_errors=True)
    begin = time.monotonic()
    while time.monotonic() - begin < 1.2:
        loops.train(model, optimizer, criterion, loops.data(), 5)
    print("went on")
if how == "handled":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
if how in ("SIGTERM", "SIGKILL", "handled"):
    # Long enough for what is written twice a second, and for some steps on a machine that is slow just now.
    begin, rounds = time.monotonic(), 0
    while time.monotonic() - begin < 0.8 or rounds < 20:
        loops.train(model, optimizer, criterion, loops.data(), 5)
        rounds += 1
    os.kill(os.getpid(), signal.SIGKILL if how == "SIGKILL" else signal.SIGTERM)
    time.sleep(60)
