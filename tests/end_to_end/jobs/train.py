"""An ordinary job: `train.py [--steps N] [--sleep SECONDS] [-v]`. Prints a line, trains, prints another."""

import argparse

import tiny

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100000)
parser.add_argument("--sleep", type=float, default=0.01)
parser.add_argument("-v", "--verbose", action="store_true")
parser.add_argument("--api-key")
arguments = parser.parse_args()

print(f"training for {arguments.steps} steps, verbose {arguments.verbose}", flush=True)
tiny.train(arguments.steps, sleep_s=arguments.sleep)
print("trained")
