"""torch.compile, export, fx and TorchScript do the same with the probe as without."""

from __future__ import annotations

import re

import pytest

from perfdoctor.recording.base import Missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]

STYLES = (
    "model_eager",
    "model_aot",
    "method",
    "nested_sequential",
    "after_some_steps",
    "part",
    "step_function",
    "loss_function",
    "optimizer_step",
    "epoch_function",
    "other_tracers",
)


def plain(stderr: str) -> list[str]:
    """Without the date, pid and frame number in front of Dynamo's log lines."""
    return sorted(re.sub(r"^[VIWE]\d{4} [\d:.]+ \d+ |\[\d+/\d+\]", "", line) for line in stderr.splitlines())


def test_a_compiled_model_trains_the_same(observe):
    seen = observe("compiled.py", "model_eager")
    seen.same()
    seen.healthy()
    assert "failed" not in seen.bare.stdout


@pytest.fixture
def seen(observe):
    return observe("compiled.py", *STYLES)


def test_same_graphs_breaks_recompiles_and_weights(seen):
    assert seen.probed.stdout.splitlines() == seen.bare.stdout.splitlines()
    assert "failed" not in seen.bare.stdout
    assert plain(seen.probed.stderr) == plain(seen.bare.stderr)
    assert seen.probed.code == seen.bare.code
    seen.healthy()


def test_a_job_that_compiles_after_some_steps_is_known_as_one_that_compiles(seen):
    """Its settings were written before."""
    late = seen.named("after_some_steps")
    assert late.settings.compiled and late.settings.compiled_at.file.endswith("compiled.py")
    assert min(one.t for one in late.compiled) > late.steps["end_ns"][5]


def test_what_the_model_returned_before_it_was_compiled_and_after_has_a_size(seen):
    late, early = (seen.named(style).settings for style in ("after_some_steps", "model_aot"))
    assert late.eager_elements == late.compiled_elements > 0
    assert early.eager_elements == 0


@pytest.mark.parametrize("style", ["model_eager", "model_aot", "method", "part"])
def test_a_compiled_model_is_timed_from_outside(seen, style):
    steps = seen.named(style).steps
    assert steps["boundary"].max() == 0
    assert set(steps["micro"][1:]) == {1}
    assert (steps["forward_us"][1:] > 0).all()


def test_no_dispatch_mode_is_put_around_compiled_code(seen):
    for style in ("model_aot", "method", "loss_function"):
        window = seen.named(style).call_sites
        assert isinstance(window, Missing) and "torch.compile" in window.reason
        assert seen.named(style).ops is not None


def test_a_compiled_step_counts_by_its_batches(seen):
    assert set(seen.named("step_function").steps["boundary"]) == {3}


def test_inductor_makes_the_same_graphs(observe):
    seen = observe("compiled.py", "model_inductor")
    assert seen.probed.stdout == seen.bare.stdout
    assert "failed" not in seen.bare.stdout
    seen.healthy()


def test_a_class_pickled_by_value_does_not_need_the_probe(observe):
    pytest.importorskip("cloudpickle")
    seen = observe("compiled.py", "by_value")
    seen.same()
    assert "True" in seen.probed.stdout
