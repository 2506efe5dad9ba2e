from __future__ import annotations

from typing import Any

import pytest
from ill_runs.dtype import bfloat16_beside, conversions, float64_on_gpu, idle_tensor_cores, needless_scaler, slow_type
from ills import ILL
from perfdoctor.checks.dtype import CHECK
from samples import asked, healthy, ids, is_clear, number, on_gpu, with_

from perfdoctor.diagnosis.findings import Confidence, Location, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import CallSite, DtypeTiming, Evidence, Missing, Op, PassWays, Site

_examined, _found = asked(CHECK)


@pytest.mark.parametrize("part", ["step", "ops", "precision"])
def test_without_steps_operators_or_types_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "it was not seen" in outcome.reason


def test_a_float32_job_is_clear_with_its_shares() -> None:
    outcome = _examined(healthy())
    assert is_clear(outcome)
    assert number(outcome, "float32_share") == pytest.approx(21 / 22)
    assert number(outcome, "float64_share") == 0


def test_complex_numbers_count_as_what_they_are_pairs_of() -> None:
    pairs = with_(healthy(), ops__self_ms_by_dtype=(("float32", 12.0), ("complex64", 8.0), ("complex128", 2.0)))
    outcome = _examined(pairs)
    assert number(outcome, "float32_share") == pytest.approx(20 / 22)
    assert number(outcome, "float64_share") == pytest.approx(2 / 22)


# ---------------------------------------------------------------------------------------------------------
# float64


def test_float64_arithmetic_is_found_with_its_timing_and_first_line() -> None:
    finding = _found(ILL["PD07.float64"])
    assert finding.id == "PD07.float64"
    assert finding.severity is Severity.ERROR
    assert finding.confidence is Confidence.HIGH
    assert finding.savings.part is Part.COMPUTE
    assert number(finding, "ratio") == pytest.approx(2.2)
    assert finding.location is not None and finding.location.line == 40


def test_the_line_that_made_everything_float64_is_the_one_to_change() -> None:
    asked = Site("train.py", 12, "main")
    finding = _found(slow_type("float64", precision__double_site=asked))
    assert finding.location is not None and finding.location.line == 12
    # A small solver of its own is float64, the network is not.
    own = slow_type(
        "float64",
        precision__double_site=asked,
        precision__parameter_dtypes=(("float32", 10),),
        precision__batch_dtypes=(),
    )
    location = _found(own).location
    assert location is not None and location.line == 40


def test_what_float32_saves_is_the_measured_ratio() -> None:
    saved = _found(slow_type("float64", 20.0, ratio=2.2)).savings
    assert saved.low_ms < 20.0 * (1 - 1 / 2.2) < saved.high_ms


def test_float64_in_a_cheap_loss_is_fine() -> None:
    outcome = _examined(slow_type("float64", 0.5))
    assert is_clear(outcome)
    assert number(outcome, "float64_share") > 0


def test_float64_that_float32_would_not_beat_is_fine() -> None:
    assert is_clear(_examined(slow_type("float64", 20.0, ratio=1.05)))
    assert is_clear(_examined(slow_type("float64", 20.0, ratio=0.9)))
    assert _found(slow_type("float64", 20.0, ratio=1.2)).id == "PD07.float64"


def test_float64_that_costs_nothing_is_clear_and_says_why() -> None:
    outcome = _examined(slow_type("float64", 20.0, ratio=0.8))
    assert "float32 would save at most {float64_saved} of that in float64" in outcome.reason
    assert number(outcome, "float64_saved") == 0.0
    assert "saved" not in _examined(healthy()).reason


@pytest.mark.parametrize(("profiled_ms", "count"), [(1.9, 0), (2.2, 1)])
def test_float64_counts_by_what_it_costs_over_float32(profiled_ms: float, count: int) -> None:
    """At 2.2x and 15 % of spread, twice, 65 % of the time can vanish: 5 % of 25 ms are 1.92 ms in float64."""
    assert len(_examined(slow_type("float64", profiled_ms)).findings) == count


def test_profiled_time_is_scaled_to_the_ordinary_step() -> None:
    """The profiler made the operators take 50 ms; the step has 24.6 for them, waiting and collecting apart."""
    finding = _found(slow_type("float64", 49.0))
    assert number(finding, "cost_ms") == pytest.approx(49.0 * 24.6 / 50.0)


def test_operators_that_could_not_be_replayed_are_timed_by_their_bytes() -> None:
    finding = _found(slow_type("float64", 20.0, ratio=None))
    assert finding.confidence is Confidence.MEDIUM
    assert "bytes" in finding.savings.method
    assert finding.savings.high_ms == pytest.approx(10.0)
    assert "ratio" not in [m.name for m in finding.evidence]


@pytest.mark.parametrize(
    ("changes", "reason", "code"),
    [
        ({"precision__default_dtype": "float64"}, "set_default_dtype", "set_default_dtype(torch.float32)"),
        ({}, "so are the batches", "model.float()"),
        ({"precision__batch_dtypes": ("float32",)}, "the model was converted", "model.float()"),
        ({"precision__parameter_dtypes": (("float32", 9),)}, "batches arrive in float64", "x.float()"),
        (
            {"precision__parameter_dtypes": (("float32", 9),), "precision__batch_dtypes": ()},
            "a part of the model",
            "x.float()",
        ),
    ],
)
def test_where_float64_comes_from_is_told_apart(changes: dict[str, Any], reason: str, code: str) -> None:
    finding = _found(slow_type("float64", **changes))
    assert reason in finding.reasoning
    assert code in finding.fix.code


def test_a_formula_in_float64_may_need_its_digits() -> None:
    """An integrator whose whole program was told to compute so; a network's layers do not need them."""
    chosen = slow_type("float64", precision__default_dtype="float64")
    assert _found(chosen).severity is Severity.ERROR
    timing = DtypeTiming("mul", "[512]", "float64", 1.0, 0.45)
    formula = with_(chosen, ops__ops=(Op("mul", "float64", "[512]", 20.0, 20.0, 20.0, 1e6),), ops__timings=(timing,))
    finding = _found(formula)
    assert finding.severity is Severity.NOTE and "keep it" in finding.reasoning
    assert _found(with_(formula, precision__default_dtype="float32")).severity is Severity.ERROR


def test_a_model_in_float64_without_a_line_of_its_own_is_its_forward_pass() -> None:
    unseen = slow_type("float64", call_sites=Missing("the window was not reached"))
    assert _found(unseen).location == Location("train.py", 20, "forward")
    neither = Missing("the window was not reached")
    assert _found(with_(unseen, hot_lines=neither, layers=neither)).location is None


def test_a_trainer_that_makes_the_model_float64_has_the_line_that_computes_so() -> None:
    fit = Site("train.py", 60, "main", "lightning/pytorch/plugins/precision/double.py:convert_module")
    asked = slow_type("float64", precision__double_site=fit)
    assert _found(asked).location == Location("train.py", 60, "main")  # from_pretrained(dtype=...), say
    assert _found(with_(asked, job__trainer="lightning")).location == Location("train.py", 40, "forward")


@pytest.mark.parametrize(("share", "severity"), [(0.06, None), (0.07, Severity.WARNING), (0.5, Severity.ERROR)])
def test_on_a_gpu_float64_is_weighed_by_operations(share: float, severity: Severity | None) -> None:
    outcome = _examined(float64_on_gpu(share))  # the device is busy for 20 of 25 ms
    assert [finding.severity for finding in outcome.findings] == ([severity] if severity else [])


def test_on_a_gpu_without_device_times_float64_is_not_timed() -> None:
    assert is_clear(_examined(with_(float64_on_gpu(0.5), ops__device_busy_ms=None)))


# ---------------------------------------------------------------------------------------------------------
# Half precision on a CPU


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_emulated_half_type_is_found_by_its_timing(dtype: str) -> None:
    finding = _found(ILL[f"PD07.{dtype}-emulated"])
    assert finding.id == f"PD07.{dtype}-emulated"
    assert finding.severity is Severity.ERROR
    assert "autocast('cpu', enabled=False)" in finding.fix.code


def test_bfloat16_that_the_hardware_multiplies_is_fine() -> None:
    assert is_clear(_examined(slow_type("bfloat16", ratio=0.45)))
    assert is_clear(_examined(slow_type("bfloat16", ratio=None, precision__bf16_native=True)))


@pytest.mark.parametrize("native", [False, Missing("this build of torch does not say")])
def test_a_half_type_without_hardware_and_timing_cannot_be_judged(native: object) -> None:
    outcome = _examined(slow_type("float16", ratio=None, precision__fp16_native=native))
    assert outcome.kind is OutcomeKind.CANNOT_TELL
    assert "float16" in outcome.reason


def test_a_little_of_an_unpriced_half_type_is_fine() -> None:
    assert is_clear(_examined(slow_type("float16", 0.5, ratio=None)))


def test_half_precision_on_a_gpu_is_fine() -> None:
    assert is_clear(_examined(on_gpu(slow_type("float16", ratio=180.0), precision__autocast_dtype="float16")))


# ---------------------------------------------------------------------------------------------------------
# Tensor cores


def test_bfloat16_is_worth_what_the_products_gain_with_their_inputs_converted_or_not() -> None:
    finding = _found(bfloat16_beside())
    assert finding.id == "PD07.bfloat16-unused" and finding.severity is Severity.NOTE
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(8.0), pytest.approx(10.0))
    assert finding.fix.remedies == ("dtype.autocast",)


def test_products_that_are_made_by_other_products_count_once() -> None:
    """Under `vmap` a product of matrices is one of batches of them, which takes all of its time."""
    once = bfloat16_beside()
    outer = Op("mm", "float32", "[8, 4] [4, 8]", 20.0, 0.1, 20.0, 4e8)
    timing = DtypeTiming("mm", "[8, 4] [4, 8]", "float32", 1.0, 1.0, 0.5, 0.1)
    ops = once.ops
    assert not isinstance(ops, Missing)
    twice = with_(once, ops__ops=(*ops.ops, outer), ops__timings=(*ops.timings, timing))
    assert _found(twice).savings.high_ms == pytest.approx(_found(once).savings.high_ms)


@pytest.mark.parametrize(
    "evidence",
    [
        bfloat16_beside(half_ms=0.97),
        bfloat16_beside(convert_ms=1.5),
        bfloat16_beside(precision__bf16_native=False),
        bfloat16_beside(precision__autocast_dtype="bfloat16"),
        bfloat16_beside(ops__timings=()),
    ],
    ids=["no faster", "converting takes more", "emulated", "on already", "not timed"],
)
def test_bfloat16_that_would_not_help_is_not_told(evidence: Evidence) -> None:
    assert is_clear(_examined(evidence))


def test_products_for_a_factorization_that_knows_no_half_type_are_told_where_the_passes_ran_in_it() -> None:
    factor = Op("linalg_cholesky_ex", "float32", "[800, 800]", 1.0, 2.0, 2.0, 2e8)
    kernel = with_(bfloat16_beside(), ops__ops=(*bfloat16_beside().ops.ops, factor))  # type: ignore[union-attr]
    assert is_clear(_examined(kernel))
    assert ids(_examined(with_(kernel, ops__ways=PassWays(20.0, (("bfloat16", 12.0),))))) == ["PD07.bfloat16-unused"]


def test_float32_products_beside_idle_tensor_cores_are_found() -> None:
    finding = _found(ILL["PD07.tensor-cores-unused"])
    assert finding.id == "PD07.tensor-cores-unused"
    assert number(finding, "cost_ms") == pytest.approx(7.5)
    assert 0 < finding.savings.low_ms < finding.savings.high_ms < 7.5
    assert "TF32" in finding.fix.code


@pytest.mark.parametrize(
    "changes",
    [
        {"precision__tf32_matmul": True},
        {"precision__autocast_dtype": "bfloat16"},
        {"precision__compute_capability": (6, 1)},
        {"precision__compute_capability": None},
        {"precision__parameter_devices": ("cpu",)},
    ],
)
def test_tensor_cores_that_are_used_or_not_there_are_fine(changes: dict[str, Any]) -> None:
    assert is_clear(_examined(idle_tensor_cores(**changes)))


@pytest.mark.parametrize(("share", "count"), [(0.049, 0), (0.051, 1)])
def test_products_count_from_five_per_cent_of_the_step_on(share: float, count: int) -> None:
    assert len(_examined(idle_tensor_cores(share)).findings) == count


def test_tf32_is_advised_only_where_there_is_any() -> None:
    volta = _found(idle_tensor_cores(precision__compute_capability=(7, 0)))
    assert "TF32" not in volta.fix.code + volta.fix.text
    assert "autocast" in volta.fix.code


# ---------------------------------------------------------------------------------------------------------
# The gradient scaler


def test_a_scaler_without_float16_is_found_by_its_time() -> None:
    finding = _found(ILL["PD07.needless-grad-scaler"])
    assert finding.id == "PD07.needless-grad-scaler"
    assert finding.severity is Severity.NOTE
    assert finding.location is not None and finding.location.line == 9


@pytest.mark.parametrize(
    "changes",
    [
        {"precision__grad_scaler": False},
        {"precision__autocast_dtype": "float16"},
        {"ops__self_ms_by_dtype": (("float16", 1.0), ("float32", 20.0))},
    ],
)
def test_a_scaler_that_is_off_or_has_float16_to_scale_is_fine(changes: dict[str, Any]) -> None:
    assert is_clear(_examined(needless_scaler(**changes)))


def test_what_the_backward_pass_converts_in_return_is_shown_at_the_line_that_asked_for_it() -> None:
    """HOT_LINES has the backward pass at line 42."""
    asked = CallSite("convert", Site("model.py", 21, "forward"), 12.0, 3.0, "float32->float64")
    back = CallSite("convert", Site("train.py", 42, "main"), 12.0, 4.0, "float64->float32")
    location = _found(conversions(call_sites=(back, asked))).location
    assert location is not None and (location.file, location.line) == ("model.py", 21)
    only_back = CallSite("convert", Site("train.py", 42, "main"), 12.0, 4.0, "float32->float64")
    location = _found(conversions(call_sites=(back, only_back))).location
    assert location is not None and location.line == 42


def test_under_lightning_float64_is_its_trainers_precision() -> None:
    finding = _found(slow_type("float64", job__trainer="lightning"))
    assert "precision='32-true'" in finding.fix.code
    assert "model.float()" in _found(slow_type("float64")).fix.code


def test_float64_that_is_made_by_converting_is_found_where_that_is() -> None:
    asked = CallSite("convert", Site("model.py", 21, "forward"), 12.0, 1.0, "float32->float64")
    back = CallSite("convert", Site("train.py", 42, "main"), 12.0, 2.0, "float32->float64")
    location = _found(slow_type("float64", precision__parameter_dtypes=(), call_sites=(back, asked))).location
    assert location is not None and (location.file, location.line) == ("model.py", 21)


def test_float64_is_found_where_it_meets_float32_first_of_all() -> None:
    meets = CallSite("promotes", Site("model.py", 17, "forward"), 3.0, 0.5, "complex128")
    back = CallSite("convert", Site("train.py", 42, "main"), 12.0, 2.0, "float32->float64")
    location = _found(slow_type("float64", precision__parameter_dtypes=(), call_sites=(back, meets))).location
    assert location is not None and (location.file, location.line) == ("model.py", 17)


def test_float64_of_numpys_is_found_where_it_becomes_a_tensor() -> None:
    meets = CallSite("promotes", Site("model.py", 17, "forward"), 3.0, 0.5, "float64")
    made = CallSite("from_numpy", Site("data.py", 5, "table"), 3.0, 0.5)
    location = _found(slow_type("float64", precision__parameter_dtypes=(), call_sites=(meets, made))).location
    assert location is not None and (location.file, location.line) == ("data.py", 5)


def test_float64_of_the_model_is_found_where_it_computes_forward() -> None:
    """Not at the backward pass, at line 42, though that takes twice as long."""
    forward = CallSite("float64", Site("model.py", 21, "forward"), 1.0, 3.0)
    back = CallSite("float64", Site("train.py", 42, "main"), 2.0, 6.0)
    location = _found(slow_type("float64", call_sites=(back, forward))).location
    assert location is not None and (location.file, location.line) == ("model.py", 21)


@pytest.mark.parametrize(("cost_ms", "count"), [(0.24, 0), (0.26, 1), (0.0, 0)])
def test_a_scaler_counts_from_one_per_cent_on(cost_ms: float, count: int) -> None:
    assert len(_examined(needless_scaler(cost_ms)).findings) == count


# ---------------------------------------------------------------------------------------------------------
# Conversions


def test_conversions_back_and_forth_are_found_at_the_costliest_line() -> None:
    finding = _found(ILL["PD07.conversions"])
    assert finding.id == "PD07.conversions"
    assert finding.location is not None and finding.location.line == 50
    assert finding.savings.ceiling_ms == pytest.approx(5.0)


@pytest.mark.parametrize(("cost_ms", "count"), [(1.2, 0), (1.3, 1)])
def test_conversions_count_from_five_per_cent_on(cost_ms: float, count: int) -> None:
    assert len(_examined(conversions(cost_ms)).findings) == count


def test_a_conversion_one_way_is_fine() -> None:
    assert is_clear(_examined(conversions(5.0, "uint8->float32", "float32->float64")))


def test_what_autocast_converts_is_its_own_business() -> None:
    pair = ("float32->bfloat16", "bfloat16->float32")
    assert is_clear(_examined(conversions(5.0, *pair, precision__autocast_dtype="bfloat16")))
    assert ids(_examined(conversions(5.0, *pair))) == ["PD07.conversions"]


def test_without_the_call_sites_conversions_are_not_seen() -> None:
    assert is_clear(_examined(conversions(call_sites=Missing("the window was not reached"))))


def test_time_without_a_cpu_is_not_blamed_on_a_type() -> None:
    """One operator that lost its CPU for a time slice must not pass for slow arithmetic."""
    little = with_(healthy(), ops__self_ms_by_dtype=(("float32", 17.0), ("float64", 5.0)))
    assert ids(_examined(little)) == ["PD07.float64"]
    assert ids(_examined(with_(little, ops__stray_ms=4.6))) == []


def test_operators_timed_on_their_own_clock_are_sure_however_long_the_profiled_steps_waited() -> None:
    """Two profiled steps of 5 ms were 20 ms long beside a neighbour, and all of it might have been waiting."""
    waited = slow_type("float64", ops__stray_ms=100.0)
    assert ids(_examined(waited)) == ["PD07.float64"]
    assert is_clear(_examined(with_(waited, ops__timings=())))


@pytest.mark.parametrize(
    ("trainer", "code"),
    [
        ("", "torch.autocast('cuda'"),
        ("lightning", "Trainer(..., precision='bf16-mixed')"),
        ("transformers", "TrainingArguments(..., bf16=True, tf32=True)"),
        ("accelerate", "Accelerator(mixed_precision='bf16')"),
    ],
)
def test_the_fix_speaks_the_frameworks_language(trainer: str, code: str) -> None:
    assert code in _found(with_(idle_tensor_cores(), job__trainer=trainer)).fix.code
