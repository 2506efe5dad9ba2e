"""Prints its arguments, and reads the number of steps from stdin."""

import sys

import tiny

print(sys.argv[1:])
steps = int(sys.stdin.readline())
tiny.train(steps, sleep_s=0.002)
print(f"{steps} steps, as told")
