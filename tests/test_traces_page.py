"""The snippets of docs/traces.md record traces with all that the page says."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "traces.md").read_text()
SNIPPETS = dict(re.findall(r"^### (\w+)\n+```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
BEFORE = {
    "PyTorch": "model, optimizer, criterion = loops.setup(); loader = loops.data(80)",
    "Lightning": """
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = loops.Net()
    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)
module, loader = Module(), loops.data(160)
""",
    "transformers": """
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
small = dict(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
model = BertForSequenceClassification(BertConfig(**small))
samples = [{"input_ids": torch.randint(0, 50, (12,)), "labels": torch.tensor(i % 2)} for i in range(40)]
arguments = TrainingArguments("out", per_device_train_batch_size=2, num_train_epochs=1, report_to=[], use_cpu=True)
""",
    "Accelerate": "model, optimizer, criterion = loops.setup(); loader = loops.data(80)",
}
"""What each takes for granted: a small job on the CPU."""


def test_every_snippet_is_run() -> None:
    assert SNIPPETS.keys() == BEFORE.keys()


def traced(name: str, folder: Path) -> list[dict[str, Any]]:
    """The events of the one trace that the snippet writes."""
    job = folder / "job.py"
    job.write_text(f"import torch, loops\n{BEFORE[name]}\n{SNIPPETS[name]}")
    done = subprocess.run(
        [sys.executable, str(job)],
        cwd=folder,
        env={
            "PYTHONPATH": str(ROOT / "tests" / "jobs"),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "HOME": str(folder),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = (folder / "traces").iterdir()
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    events: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return events


@pytest.mark.e2e
@pytest.mark.parametrize(
    "name", ["PyTorch", *(pytest.param(one, marks=pytest.mark.slow) for one in BEFORE if one != "PyTorch")]
)
def test_a_snippet_records_steps_shapes_and_lines(name: str, tmp_path: Path) -> None:
    events = traced(name, tmp_path)
    assert len({event["name"] for event in events if event["name"].startswith("ProfilerStep#")}) == 5
    products = [event for event in events if event["name"] == "aten::addmm"]
    assert products and all(event["args"]["Input Dims"] for event in products)
    assert any(event.get("cat") == "python_function" and "job.py" in event["name"] for event in events)
