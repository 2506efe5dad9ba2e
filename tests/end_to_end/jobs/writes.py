"""Prints to both streams, without a last newline, and writes a file at its very end."""

import pathlib
import sys

import tiny

tiny.train(50, at_step=lambda step: print(f"step {step}", file=sys.stderr if step % 5 == 0 else sys.stdout))
sys.stdout.buffer.write(b"\x00\xff bytes that are no text")
sys.stdout.flush()
pathlib.Path(sys.argv[1]).write_text("complete")
sys.exit(7)
