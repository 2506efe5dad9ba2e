"""Accelerate, with accumulation by its own context manager."""

import facts
import loops
from accelerate import Accelerator

facts.seed()
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model, optimizer, criterion = loops.setup()
model, optimizer, loader = accelerator.prepare(model, optimizer, loops.data(160))
for x, y in loader:
    with accelerator.accumulate(model):
        accelerator.backward(criterion(model(x), y))
        optimizer.step()
        optimizer.zero_grad()
print(facts.digest(model.parameters()), facts.randomness())
