"""Reads the number of steps from stdin."""

import sys

import tiny

steps = int(sys.stdin.readline())
tiny.train(steps, sleep_s=0.002)
print(f"{steps} steps, as told")
