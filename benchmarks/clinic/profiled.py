"""Runs a program, profiles twenty of its optimizer steps, prints the operator with the largest self time, and ends."""

import os
import runpy
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

FIRST, LAST = 10, 30
profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
steps = 0


def stepped(optimizer, arguments, named) -> None:
    global steps
    steps += 1
    if steps == FIRST:
        profile.start()
    elif steps == LAST:
        finish()


def finish() -> None:
    profile.stop()
    rows = [row for row in profile.key_averages() if not row.key.startswith(("ProfilerStep", "Optimizer."))]
    print("\nlargest:", max(rows, key=lambda row: row.self_cpu_time_total).key, flush=True)
    os._exit(0)


register_optimizer_step_post_hook(stepped)
sys.argv = sys.argv[1:]
sys.path.insert(0, "")
runpy.run_path(sys.argv[0], run_name="__main__")
if steps >= FIRST:
    finish()
