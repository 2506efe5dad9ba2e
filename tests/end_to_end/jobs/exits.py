"""Trains, then leaves by os._exit: no atexit, no flush."""

import os
import sys

import tiny

tiny.train(80, sleep_s=0.005)
sys.stdout.write("leaving\n")
sys.stdout.flush()
os._exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
