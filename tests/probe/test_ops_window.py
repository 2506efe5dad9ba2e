"""The operator window: its floating-point operations, and that it leaves no trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def counts():
    command = [sys.executable, str(ROOT / "tests/jobs/flops.py"), str(ROOT / "perfdoctor/injected")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "case", ["mlp", "conv", "dilated", "transposed", "conv1d", "conv3d", "bmm", "attention by parts", "gru"]
)
def test_operations_are_those_of_torchs_own_counter(counts, case):
    assert counts[case]["ours"] == counts[case]["theirs"] != {}


def test_a_grouped_convolution_goes_back_at_twice_its_way_forward(counts):
    # torch's counter forgets the groups there (2.13).
    ours = counts["grouped"]["ours"]
    assert ours["convolution"] == counts["grouped"]["theirs"]["convolution"]
    assert ours["convolution_backward"] == 2 * ours["convolution"]


def test_what_torchs_counter_does_not_know_is_counted_by_formula(counts):
    def layer(inputs: int, hidden: int = 24, tokens: int = 4 * 7) -> int:
        return 2 * tokens * (4 * hidden * inputs + 4 * hidden * hidden) * 2  # both directions

    ours = counts["lstm"]["ours"]
    assert ours["mkldnn_rnn_layer"] == layer(16) + layer(48)
    assert ours["mkldnn_rnn_layer_backward"] == 2 * ours["mkldnn_rnn_layer"]
    ours = counts["attention"]["ours"]
    assert sum(n for name, n in ours.items() if "backward" not in name) == 2 * 2 * (2 * 4) * 32 * 48 * 16
