"""Lines that set the number of threads or switch oneDNN off are noted, and do what they did."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    ("style", "threads", "onednn"),
    [("assigned", 11, 12), ("called", None, 16), ("untouched", None, None)],
)
def test_the_line_is_noted(observe, style, threads, onednn):
    seen = observe("knobs.py", style)
    assert seen.probed.stdout == seen.bare.stdout
    seen.healthy()
    (process,) = seen.processes
    places = process.settings.threads.set_at, process.settings.backend.onednn_off_at
    assert [place and place.line for place in places] == [threads, onednn]


DOUBLE = """
import torch
from torch import nn
model = nn.Linear(4, 1).to("cpu").to(torch.float32)
model = model.to(STYLE)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
    optimizer.step()
print(model.weight.dtype)
"""


@pytest.mark.parametrize("style", ["torch.float64", "dtype=torch.float64", "torch.ones(1).double()"])
def test_the_line_that_makes_a_model_float64_is_noted(observe, tmp_path, style):
    script = tmp_path / "double.py"
    script.write_text(DOUBLE.replace("STYLE", style))
    seen = observe(script)
    assert seen.probed.stdout == seen.bare.stdout == "torch.float64\n"
    seen.healthy()
    (process,) = seen.processes
    assert process.settings.precision.double_site.line == 5
