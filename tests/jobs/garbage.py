"""Explicit collections, by every name, and callbacks that the job removes."""

import gc
import sys
from gc import collect as early  # the real one: torch comes later

import loops
import torch

late = gc.collect

model, optimizer, criterion = loops.setup()
for i, (x, y) in enumerate(loops.data()):
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    if i % 10 == 1:
        gc.collect()
    if i % 10 == 2:
        late(1)
    if i % 10 == 3:
        early()
    if i % 10 == 4:
        torch.cuda.empty_cache()
        torch.cuda.memory.empty_cache()
    if i == 25:
        gc.callbacks.clear()
try:
    gc.collect(5)
except ValueError as error:
    print(error)
print(gc.collect.__name__, gc.collect.__module__, callable(early), sys.getrefcount is not None)
