"""Which dimension of an operator is the batch, and what timing it with another one returns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def seen():
    command = [sys.executable, str(ROOT / "tests/jobs/batches.py"), str(ROOT / "perfdoctor/injected")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("case", "larger"),
    [
        ("forward", [[64], [24, 32], [32, 64], [], []]),
        ("gradient of the input", [[24, 64], [64, 32]]),
        ("gradient of the weight", [[64, 24], [24, 32]]),
        ("attention", [[24, 5, 7], [24, 7, 5]]),
        ("convolution", [[24, 3, 8, 8], [6, 3, 3, 3], [6]]),
        ("convolution whose weight has as many rows", [[24, 3, 8, 8], [8, 3, 3, 3], [8]]),
        ("recurrent", [[5, 24, 16], [64, 16], [64, 16], [64], [64], [24, 16], [24, 16]]),
        ("elementwise", None),
    ],
)
def test_only_the_batch_grows(seen, case, larger):
    assert seen["resized"][case] == larger


def test_what_cannot_be_divided_is_left_alone(seen):
    assert seen["divided"] == {"8 by 4": [[64], [2, 32], [32, 64], [], []], "6 by 4": None}


@pytest.mark.parametrize("network", ["linear", "convolutional", "recurrent", "attention"])
def test_products_of_a_network_are_timed_at_both_sizes(seen, network):
    timings = seen["timings"][network]
    assert timings["peak_gflops"] > 0 and timings["floor_ms"] > 0
    assert timings["ops"], network
    for row in timings["ops"]:
        assert min(row["milliseconds"], row["larger_milliseconds"]) > 0 and row["factor"] in (2, 4)
    expected = {
        "linear": "addmm",
        "convolutional": "convolution_backward",
        "recurrent": "mkldnn_rnn_layer",
        "attention": "_scaled_dot_product_flash_attention_for_cpu_backward",
    }
    assert expected[network] in {row["name"] for row in timings["ops"]}


def test_timing_draws_no_random_numbers(seen):
    assert seen["random"][0] == seen["random"][1]
