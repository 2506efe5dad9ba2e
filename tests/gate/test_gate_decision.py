"""The rule for timed metrics, on simulated noise: what it finds, what it never says, and when it gives up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from perfdoctor.gate.decision import Next, Policy, decide, decide_share, estimate, holm, suspects, trimmed_mean, wants
from perfdoctor.gate.model import Verdict
from perfdoctor.gate.plan import SLICES

POLICY = Policy()
RUNS = 200

Draw = Callable[[np.random.Generator], float]


def gate(draw: Draw, rng: np.random.Generator, policy: Policy = POLICY) -> tuple[Verdict, int]:
    """One whole gate on pairs that `draw` makes: the verdict and the pairs of the first stage."""
    first: list[float] = []
    while (want := wants({"core": first}, "core", policy, time_left=True)) is Next.MORE:
        first += [draw(rng) for _ in range(policy.more if first else policy.first)]
    fresh = [draw(rng) for _ in range(policy.fresh)] if want is Next.CONFIRM else []
    return decide({"core": first}, {"core": fresh}, policy)["core"].verdict, len(first)


def verdicts(effect: float, noise: float, seed: int = 1) -> Counter[Verdict]:
    rng = np.random.default_rng(seed)
    shift = math.log1p(effect)
    return Counter(gate(lambda r: r.normal(shift, noise), rng)[0] for _ in range(RUNS))


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.03])
def test_a_program_against_itself_passes(noise: float) -> None:
    seen = verdicts(0.0, noise)
    assert seen[Verdict.REGRESSION] == 0
    assert seen[Verdict.PASS] >= 0.97 * RUNS


@pytest.mark.parametrize(("noise", "least"), [(0.01, 1.0), (0.02, 0.98), (0.03, 0.93)])
def test_a_slowdown_of_the_tolerance_is_found(noise: float, least: float) -> None:
    assert verdicts(0.05, noise)[Verdict.REGRESSION] >= least * RUNS


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.03, 0.06])
def test_twice_the_tolerance_never_passes(noise: float) -> None:
    seen = verdicts(0.10, noise)
    assert seen[Verdict.PASS] == seen[Verdict.IMPROVEMENT] == 0
    if noise <= 0.03:
        assert seen[Verdict.REGRESSION] >= 0.98 * RUNS


def test_too_much_noise_is_inconclusive_and_not_wrong() -> None:
    seen = verdicts(0.0, 0.06)
    assert seen[Verdict.INCONCLUSIVE] > 0.3 * RUNS
    assert seen[Verdict.REGRESSION] <= 0.02 * RUNS


def test_a_speedup_is_a_notice_and_never_a_regression() -> None:
    seen = verdicts(-0.05, 0.02)
    assert seen[Verdict.REGRESSION] == 0
    assert seen[Verdict.IMPROVEMENT] >= 0.9 * RUNS


def test_single_wild_launches_do_not_decide() -> None:
    def draw(rng: np.random.Generator) -> float:
        return float(rng.normal(0, 0.01)) + (0.5 if rng.random() < 0.05 else 0.0)

    rng = np.random.default_rng(3)
    seen = Counter(gate(draw, rng)[0] for _ in range(RUNS))
    assert seen[Verdict.REGRESSION] <= 0.01 * RUNS


def test_a_slower_second_slot_cancels_when_the_order_is_balanced() -> None:
    # Each pair is the mean of one launch in either order, as the ABBA schedule makes it.
    rng = np.random.default_rng(4)
    bias = math.log(1.03)
    seen = Counter(gate(lambda r: (r.normal(bias, 0.02) + r.normal(-bias, 0.02)) / 2, rng)[0] for _ in range(RUNS))
    assert seen[Verdict.PASS] >= 0.99 * RUNS


def test_more_pairs_are_asked_for_because_of_noise_only() -> None:
    quiet, loud = [0.2 + 0.001 * i for i in range(8)], [(-1) ** i * 0.2 for i in range(8)]
    assert wants({"core": quiet}, "core", POLICY, True) is Next.CONFIRM
    assert wants({"core": [x - 0.2 for x in quiet]}, "core", POLICY, True) is Next.DONE
    assert wants({"core": loud}, "core", POLICY, True) is Next.MORE
    assert wants({"core": loud * 3}, "core", POLICY, True) is Next.DONE
    assert wants({"core": loud}, "core", POLICY, time_left=False) is Next.DONE


def test_the_time_being_up_is_inconclusive() -> None:
    found = decide({"core": [0.0] * 5}, {}, POLICY)["core"]
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "5 of 8" in found.reason
    slower = [0.1 + 0.001 * i for i in range(8)]
    assert decide({"core": slower}, {"core": slower[:3]}, POLICY)["core"].verdict is Verdict.INCONCLUSIVE


def test_what_fresh_launches_do_not_confirm_is_no_regression() -> None:
    slower = [0.05 + 0.001 * i for i in range(8)]
    found = decide({"core": slower}, {"core": [0.0] * 8}, POLICY)["core"]
    assert found.verdict in (Verdict.INCONCLUSIVE, Verdict.PASS)


# -- each condition of the rule, on pairs that are made for it ---------------------------------------------


def pairs(mean: float, error: float = 0.0) -> list[float]:
    """Eight pairs with that trimmed mean and that standard error: half lie above, half below, all as far."""
    away = error / math.sqrt(8 / 30)
    return [mean + away * (-1) ** i for i in range(8)]


def decision(first: list[float], fresh: list[float] | None = None) -> tuple[Verdict, str]:
    found = decide({"core": first}, {"core": fresh or []}, POLICY)["core"]
    return found.verdict, found.reason


def test_pairs_are_as_they_are_asked_for() -> None:
    seen = estimate(pairs(0.03, 0.01))
    assert (seen.mean, seen.error) == (pytest.approx(0.03), pytest.approx(0.01))


def test_what_chance_explains_is_not_suspected() -> None:
    assert suspects({"core": pairs(0.03, 0.0115)}, POLICY) == ()
    assert suspects({"core": pairs(0.03, 0.005)}, POLICY) == ("core",)


def test_less_than_half_the_tolerance_is_not_suspected_however_certain() -> None:
    assert suspects({"core": pairs(0.02, 0.001)}, POLICY) == ()


def test_what_is_too_noisy_to_say_is_not_suspected_however_large() -> None:
    assert suspects({"core": pairs(0.2, 0.02)}, POLICY) == ()


def test_the_fresh_pairs_must_show_it_by_themselves() -> None:
    """All pairs together would: the first ones are so much slower."""
    verdict, reason = decision(pairs(0.10, 0.001), pairs(0.012))
    assert (verdict, reason) == (Verdict.INCONCLUSIVE, "it looked slower at first, but not in fresh launches")


def test_fresh_pairs_that_are_all_over_the_place_confirm_nothing() -> None:
    assert decision(pairs(0.03, 0.001), pairs(0.02, 0.05))[0] is Verdict.INCONCLUSIVE
    assert decision(pairs(0.06, 0.001), pairs(0.06, 0.001))[0] is Verdict.REGRESSION


def test_a_suspicion_that_fresh_pairs_rule_out_passes() -> None:
    assert decision(pairs(0.03, 0.001), pairs(0.0, 0.001))[0] is Verdict.PASS


def test_a_pass_excludes_the_tolerance_and_not_only_the_mean() -> None:
    verdict, reason = decision(pairs(0.03, 0.0115))
    assert (verdict, reason) == (Verdict.INCONCLUSIVE, "a slowdown of 5 % cannot be ruled out")
    assert decision(pairs(0.02, 0.005))[0] is Verdict.PASS


def test_an_improvement_is_half_the_tolerance_and_beyond_chance() -> None:
    assert decision(pairs(-0.03, 0.001))[0] is Verdict.IMPROVEMENT
    assert decision(pairs(-0.02, 0.001))[0] is Verdict.PASS
    assert decision(pairs(-0.03, 0.012))[0] is Verdict.PASS


def test_a_rise_of_a_share_must_be_beyond_chance() -> None:
    assert decide_share(pairs(0.04, 0.0125), 0.3, POLICY).verdict is Verdict.INCONCLUSIVE
    assert decide_share(pairs(0.04, 0.005), 0.3, POLICY).verdict is Verdict.REGRESSION


def test_identical_times_pass() -> None:
    assert decide({"core": [0.0] * 8}, {}, POLICY)["core"].verdict is Verdict.PASS


def test_the_order_of_pairs_and_the_names_of_metrics_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    values = list(rng.normal(0.05, 0.02, 12))
    forward, backward = estimate(values), estimate(values[::-1])
    assert (forward.mean, forward.error) == (backward.mean, backward.error)
    pair = {"core": values, "all_in": values}
    assert len({d.verdict for d in decide(pair, pair, POLICY).values()}) == 1


def test_swapping_the_arms_changes_the_sign_only() -> None:
    values = list(np.random.default_rng(6).normal(0.03, 0.02, 10))
    one, other = estimate(values), estimate([-v for v in values])
    assert one.mean == pytest.approx(-other.mean)
    assert one.error == pytest.approx(other.error)


def test_yuens_error_is_scipys() -> None:
    from scipy.stats import ttest_ind

    values = list(np.random.default_rng(7).normal(0.03, 0.02, 13))
    # Against a sample without any spread, Yuen's two-sample test is the one-sample one.
    theirs = ttest_ind(values, np.zeros(1000), trim=0.2, equal_var=False)
    seen = estimate(values)
    assert seen.mean / seen.error == pytest.approx(theirs.statistic, rel=1e-6)


def test_the_trimmed_mean_leaves_out_a_fifth_on_either_side() -> None:
    assert trimmed_mean([0, 0, 0, 0, 100]) == 0
    assert trimmed_mean([1, 2, 3]) == 2


def test_holm_holds_the_smallest_to_the_strictest_level() -> None:
    assert holm({"a": 0.001, "b": 0.004}, 0.01) == {"a": 0.005, "b": 0.01}
    assert holm({"a": 0.006, "b": 0.0061}, 0.01) == {"a": 0.005, "b": 0.0}


def test_one_metric_that_is_worse_is_suspected_alone() -> None:
    noise = [0.001 * i for i in range(8)]
    assert suspects({"core": noise, "all_in": [0.1 + x for x in noise]}, POLICY) == ("all_in",)


@pytest.mark.parametrize(
    ("rise", "after", "verdict"),
    [
        (0.10, 0.30, Verdict.REGRESSION),
        (0.02, 0.30, Verdict.PASS),
        (0.04, 0.045, Verdict.PASS),
        (0.03 - 1e-3, 0.30, Verdict.INCONCLUSIVE),
    ],
)
def test_a_share_is_judged_in_percentage_points(rise: float, after: float, verdict: Verdict) -> None:
    spread = [0.002 * (-1) ** i for i in range(8)]
    assert decide_share([rise + s for s in spread], after, POLICY).verdict is verdict


def test_a_share_with_few_pairs_is_inconclusive() -> None:
    assert decide_share([0.1] * 3, 0.5, POLICY).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.02])
def test_a_second_slot_that_is_slower_is_no_slowdown(noise: float) -> None:
    """Whichever copy comes second in a slice is 3 % slower; who that is, is drawn anew for every slice."""

    def draw(rng: np.random.Generator) -> float:
        slices = rng.choice((-1, 1), SLICES) * math.log(1.03)
        return trimmed_mean(slices) + float(rng.normal(0, noise))

    rng = np.random.default_rng(5)
    seen = Counter(gate(draw, rng)[0] for _ in range(RUNS))
    assert seen[Verdict.REGRESSION] == 0
    assert seen[Verdict.PASS] >= 0.97 * RUNS


def test_an_order_that_never_changes_would_make_it_one() -> None:
    """What the random order is for."""
    rng = np.random.default_rng(5)
    verdict, _ = gate(lambda r: math.log(1.03) + float(r.normal(0, 0.01)), rng)
    assert verdict is not Verdict.PASS
