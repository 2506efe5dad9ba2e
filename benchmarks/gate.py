"""How often the gate is right: `python benchmarks/gate.py --size small|medium|full`.

Whole gates on a job whose slowdowns are known, and the decision alone on recorded noise. Prints one line per trial as
it ends, with an exact 95 % interval. `small` takes minutes, `full` a night: 0 false alarms in 299 decisions and 59 of
59 slowdowns are what shows 1 % and 95 %.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy.stats import beta

from perfdoctor.commands.selftest import JOB, Trial, compare, problem_of
from perfdoctor.config.gate import GateSettings
from perfdoctor.config.settings import Config
from perfdoctor.exits import Exit
from perfdoctor.gate.decision import Next, Policy, decide, trimmed_mean, wants
from perfdoctor.gate.interleaving import Launch, Limits, Program, interleave
from perfdoctor.gate.model import GateResult, Verdict
from perfdoctor.gate.plan import SLICES
from perfdoctor.gate.samples import ratio_all_in, ratio_core
from perfdoctor.launch.command import Command
from perfdoctor.recording.directory import RunDirectory

SAME = "the same program"
WRONG_TREE = "files of another arm"
FOUND = (Verdict.REGRESSION,)
MOVED = (Verdict.REGRESSION, Verdict.PASS, Verdict.IMPROVEMENT, Verdict.INCONCLUSIVE)
"""Where a metric has to move, and whether the step gets slower by it is not what is asked."""
BALLAST = ("--objects", "100000", "--storm", "300")
TRIALS = (
    Trial(SAME, (), (Verdict.PASS,)),
    Trial("+5 % by spinning", ("--spin", "0.05"), FOUND),
    Trial("+10 % by spinning", ("--spin", "0.1"), FOUND),
    Trial("an extra layer", ("--layers", "1"), FOUND, loss_may_change=True),
    Trial("one .item() more", ("--items", "1"), FOUND, ("op:aten::item",)),
    Trial("one .clone() more", ("--clones", "1"), FOUND, ("op:aten::clone",)),
    Trial("one .to() more", ("--casts", "1"), FOUND, ("op:aten::to",)),
    Trial("a worker more", ("--workers", "1"), (Verdict.NOT_COMPARABLE,)),
    Trial("another batch size", ("--batch", "32"), (Verdict.NOT_COMPARABLE,)),
    Trial("another seed", ("--seed", "1"), (Verdict.NOT_COMPARABLE,)),
    Trial("a crash at once", ("--fail", "0"), (Exit.JOB_FAILED, Exit.NOT_MEASURABLE)),
    Trial("a crash later", ("--fail", "200"), (Exit.JOB_FAILED,)),
    Trial("too short", ("--steps", "30"), (Exit.NOT_MEASURABLE,)),
    Trial("a data set that is missing", ("--data", "no-such-file"), (Exit.JOB_FAILED,)),
    Trial("a program that does next to nothing", ("--hollow",), (Verdict.NOT_COMPARABLE,)),
    Trial("-5 %", (), (Verdict.IMPROVEMENT, Verdict.PASS), before=("--spin", "0.05")),
    Trial("an allocation storm", ("--storm", "300"), MOVED, differs=("gc_collections_gen0", "gc_share")),
    Trial(
        "gc.freeze() taken out", (*BALLAST,), MOVED, before=(*BALLAST, "--freeze"),
        differs=("gc_collections_gen2", "gc_share"),
    ),
)  # fmt: skip
SIZES = {"small": 1, "medium": 5, "full": 30}
SLOT = 0.03
DECISIONS = {"small": 299, "medium": 2000, "full": 10000}
QUICK = (
    "one .item() more",
    "one .clone() more",
    "one .to() more",
    "a worker more",
    "another batch size",
    "a program that does next to nothing",
    "an allocation storm",
    "gc.freeze() taken out",
)
"""Counted, not timed: a few launches say it, so these are made with a time budget of a few pairs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--only", help="trials whose name holds this")
    parser.add_argument("--pairs", type=int, default=0, help="record this many A/A pairs, and decide on their noise")
    parser.add_argument(
        "--noise",
        type=Path,
        nargs="+",
        help="recorded A/A log-ratios: written with --pairs, else read; outputs of whole gates do too",
    )
    parser.add_argument("--neighbour", action="store_true", help="keep a core busy meanwhile")
    parser.add_argument("--time-budget", type=float, default=600.0, help="seconds of one gate")
    parser.add_argument("--output", type=Path, help="results as JSON")
    given = parser.parse_args()
    results: dict[str, dict[str, object]] = {}
    with _neighbour() if given.neighbour else _nobody():
        if given.pairs:
            noise = record_noise(given.pairs)
            if given.noise:
                given.noise[0].write_text(json.dumps(noise))
            results["decision"] = decisions(noise, DECISIONS[given.size])
        elif given.noise:
            results["decision"] = decisions(read_noise(given.noise), DECISIONS[given.size])
        else:
            chosen = [trial for trial in TRIALS if not given.only or given.only in trial.name]
            results["gates"] = gates(chosen, SIZES[given.size], given.time_budget)
            if not given.only or given.only in WRONG_TREE:
                results["gates"] |= {WRONG_TREE: wrong_tree()}
    if given.output:
        given.output.write_text(json.dumps(results, indent=1) + "\n")


def gates(trials: Sequence[Trial], rounds: int, budget_s: float) -> dict[str, object]:
    """Whole gates."""
    table: dict[str, object] = {}
    for trial in trials:
        seen: Counter[str] = Counter()
        pairs: list[dict[str, list[float]]] = []
        right = 0
        for number in range(rounds):
            began = time.monotonic()
            limit = min(budget_s, 60.0) if trial.name in QUICK else budget_s
            with tempfile.TemporaryDirectory(prefix="perfdoctor-") as runs:
                config = dataclasses.replace(Config(), runs=Path(runs), gate=GateSettings(time_budget_s=limit))
                found = compare(trial, config, Policy())
            problem = problem_of(trial, found)
            right += not problem
            if isinstance(found, GateResult):
                pairs.append({name.rpartition(".")[2]: list(values) for name, values in found.pairs.items()})
            seen[found.verdict.value if isinstance(found, GateResult) else f"exit {int(found.exit_code)}"] += 1
            print(
                f"  {trial.name} {number + 1}/{rounds}: {problem or 'right'} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
        low, high = interval(right, rounds)
        print(f"{trial.name}: {right} of {rounds} right [{low:.2f}, {high:.2f}], {dict(seen)}", flush=True)
        table[trial.name] = {
            "right": right, "rounds": rounds, "interval": [low, high], "verdicts": dict(seen), "pairs": pairs,
        }  # fmt: skip
    return table


def wrong_tree() -> dict[str, object]:
    """A job that finds its package in the repository whichever arm it is run for: refused, and said which file."""
    with tempfile.TemporaryDirectory(prefix="perfdoctor-") as name:
        root = Path(name).resolve()
        package = root / "src" / "trial_package.py"
        package.parent.mkdir()
        package.write_text(JOB.read_text())
        (root / "train.py").write_text(
            f"import sys\nsys.path.insert(0, {str(package.parent)!r})\nimport trial_package\n"
        )
        for words in (
            ("init", "--quiet", "--initial-branch", "main"),
            ("add", "--all"),
            ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "commit", "--quiet", "--message", "one"),
        ):
            subprocess.run(["git", *words], cwd=root, check=True)
        package.write_text(package.read_text() + "\n# changed\n")
        done = subprocess.run(
            [sys.executable, "-m", "perfdoctor", "gate", "--against", "main", "train.py"],
            cwd=root, capture_output=True, text=True, check=False,
        )  # fmt: skip
    right = done.returncode == int(Exit.NOT_MEASURABLE) and "not its own file" in done.stderr
    print(f"{WRONG_TREE}: {'right' if right else done.stderr[-500:]}, exit {done.returncode}", flush=True)
    return {"right": int(right), "rounds": 1, "verdicts": {f"exit {done.returncode}": 1}}


def read_noise(files: Sequence[Path]) -> dict[str, list[float]]:
    """Log-ratios of a program against itself: recorded on purpose, or by whole gates that compared it with itself."""
    noise: dict[str, list[float]] = {"core": [], "all_in": []}
    for file in files:
        found = json.loads(file.read_text())
        for pairs in found["gates"][SAME]["pairs"] if "gates" in found else [found]:
            for name, values in noise.items():
                values += pairs[name]
    return noise


def record_noise(pairs: int) -> dict[str, list[float]]:
    """Log-ratios of a program against itself, pair by pair."""
    noise: dict[str, list[float]] = {"core": [], "all_in": []}
    command = Command((sys.executable, str(JOB)), "trial")
    for number in range(pairs):
        with tempfile.TemporaryDirectory(prefix="perfdoctor-") as runs:
            launches = [
                Launch(
                    name,
                    Program(name, command, Path.cwd(), dict(os.environ)),
                    RunDirectory.create(Path(runs), name),
                )
                for name in ("was", "now")
            ]
            samples = interleave(launches, Limits(60.0, os.cpu_count() or 1), random.Random())
        noise["core"].append(ratio_core(samples["was"], samples["now"]))
        noise["all_in"].append(ratio_all_in(samples["was"], samples["now"]))
        shown = ", ".join(f"{name} {100 * values[-1]:+.2f} %" for name, values in noise.items())
        print(f"  pair {number + 1}/{pairs}: {shown}", flush=True)
    return noise


def decisions(noise: dict[str, list[float]], count: int) -> dict[str, object]:
    """The decision alone, on recorded noise drawn with replacement and with a random sign."""
    rng = np.random.default_rng(0)
    policy = Policy()
    table: dict[str, object] = {}
    for effect in (0.0, -0.05, 0.05, 0.10):
        seen = Counter(_one_decision(noise["core"], math.log1p(effect), policy, rng).value for _ in range(count))
        low, high = interval(seen["regression"], count)
        share = f"regressions [{low:.4f}, {high:.4f}]"
        print(f"{100 * effect:+.0f} %: {dict(seen)}, {share}, noise of {len(noise['core'])} pairs")
        table[f"{100 * effect:+.0f} %"] = dict(seen)
    seen = Counter(_one_decision(noise["core"], 0.0, policy, rng, slot=SLOT).value for _ in range(count))
    print(f"second slot {100 * SLOT:.0f} % slower: {dict(seen)}")
    table[f"second slot {100 * SLOT:.0f} % slower"] = dict(seen)
    return table


def _one_decision(
    noise: Sequence[float], shift: float, policy: Policy, rng: np.random.Generator, slot: float = 0.0
) -> Verdict:
    """`slot` slows down whichever arm comes second in a slice; the order is drawn anew for each slice."""

    def draw(number: int) -> list[float]:
        second = rng.choice((-1, 1), (number, SLICES)) * math.log1p(slot)
        biased = np.array([trimmed_mean(slices) for slices in second])
        return list(shift + biased + rng.choice(noise, number) * rng.choice((-1, 1), number))

    first: list[float] = []
    while (want := wants({"core": first}, "core", policy, True)) is Next.MORE:
        first += draw(policy.more if first else policy.first)
    fresh = draw(policy.fresh) if want is Next.CONFIRM else []
    return decide({"core": first}, {"core": fresh}, policy)["core"].verdict


def interval(right: int, rounds: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 %."""
    low = float(beta.ppf(0.025, right, rounds - right + 1)) if right else 0.0
    high = float(beta.ppf(0.975, right + 1, rounds - right)) if right < rounds else 1.0
    return low, high


@contextmanager
def _neighbour() -> Iterator[None]:
    """A process that keeps a core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _nobody() -> Iterator[None]:
    yield


if __name__ == "__main__":
    main()
