"""The verdict: one sentence about where the steady step goes and what it could be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.findings import Part
from ..diagnosis.integrity import DOUBTS
from ..diagnosis.measured import Verdict
from ..diagnosis.outcomes import OutcomeKind
from ..evidence.model import CodeLine, Evidence, Line, Missing, Parts, Step
from . import wording
from .anatomy import LOOKS
from .device import bound_by, device_bounds

UNEXPLAINED_SHARE = 0.2
"""With this share of the step outside forward, backward and optimizer, "nothing found" is not good news."""

UNEXPLAINED_REST = 0.5
"""With more of the step than this outside all findings, the report says where it goes."""

HOTTEST = 3
"""Lines named there."""

_PART_WORDS = {
    Part.INPUT_WAIT: LOOKS["input_wait"].label,
    Part.GC: LOOKS["gc"].label,
    Part.COMPUTE: "computing (forward, backward and optimizer)",
    Part.OTHER: "outside forward, backward and optimizer",
    Part.COMMUNICATION: LOOKS["communication"].label,
}


def verdict(diagnosis: Diagnosis) -> str:
    """What speaks against the numbers; then where the steady step goes and what it could be, in one sentence."""
    return " ".join([*doubts(diagnosis), lead(diagnosis)])


def doubts(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What speaks against the numbers, a sentence each."""
    return tuple(wording.noted(note) for note in diagnosis.integrity if note.name in DOUBTS)


def lead(diagnosis: Diagnosis) -> str:
    """Where the steady step goes and what it could be."""
    step = diagnosis.evidence.step
    if isinstance(step, Missing):
        return _without_step(diagnosis, step)
    bound = bound_by(diagnosis.evidence)
    subject = _subject(diagnosis).rstrip(",") + bound if bound else _subject(diagnosis)
    takes = f"{subject} takes {wording.duration(step.step_ms)}"
    seen = diagnosis.evidence.activity
    if not isinstance(seen, Missing):
        takes += f", in which the device has nothing to do for {_amount(seen.idle_ms, step)}"
    elif diagnosis.ills:
        part = diagnosis.ills[0].savings.part
        spent = _spent(step.parts, part)
        if spent > 0:
            takes += f", of which {_amount(spent, step)} is {_words(part, diagnosis.evidence.on_cuda)}"
    if diagnosis.ills:
        return f"{takes}{_between(diagnosis, step)}; {_prospect(diagnosis)}."
    # In a step that the device bounds, whatever the host does beside computing costs nothing.
    large = "" if device_bounds(diagnosis.evidence) or not isinstance(seen, Missing) else _unexplained(step)
    return f"{takes}{large}{', but' if large else ';'} {_nothing_found(diagnosis, bool(large))}{_offered(diagnosis)}."


def combined(diagnosis: Diagnosis) -> str:
    """The step with all fixes: "9 to 12 ms (speed-up 2.1x to 2.8x)", "12 ms or less (speed-up at least 2.1x)" where
    that is wide; "" without a prediction."""
    together = diagnosis.combined
    if together is None or together.high_ms <= 0:
        return ""
    shortest, longest = (max(0.0, together.step_ms - saved) for saved in (together.high_ms, together.low_ms))
    if together.low_ms <= 0:
        after = f"{wording.duration(shortest, wording.PREDICTED_DIGITS)} at best"
    elif wording.is_wide(*wording.speed_ups(together.low_ms, together.high_ms, together.step_ms)):
        after = f"{wording.duration(longest, wording.PREDICTED_DIGITS)} or less"
    else:
        after = wording.span(shortest, longest)
    return f"{after} ({wording.speed_up(max(0.0, together.low_ms), together.high_ms, together.step_ms)})"


def proven(diagnosis: Diagnosis) -> str:
    """What trials made of the job: everything that helped at once, or the best of them; "" where nothing did."""
    trials = diagnosis.trials
    if trials is None:
        return ""
    helped = [trial for trial in trials.single if trial.verdict is Verdict.HELPED and trial.keep]
    together = [trials.together] if trials.together and trials.together.verdict is Verdict.HELPED else []
    gains = {trial.names: trial.gain for trial in together or helped if trial.gain is not None}
    if not gains:
        return ""
    names, gain = max(gains.items(), key=lambda item: item[1].factor)
    measured = wording.interval(gain.factor, gain.low, gain.high)
    return f"; tried on the running job: speed-up {measured} with {wording.listing(names)}"


def whereabouts(diagnosis: Diagnosis) -> str:
    """Where the time goes that no finding explains: the largest part, and the lines that take the most of the step.

    "" when findings explain at least half of the step, or no line was seen. Where the device bounds the step its
    largest part is named alone: lines are known by what they cost the host.
    """
    step, lines = diagnosis.evidence.step, _lines(diagnosis.evidence)
    rest = diagnosis.unexplained
    if isinstance(step, Missing) or isinstance(lines, Missing) or not lines:
        return ""
    if rest is None or rest.share < UNEXPLAINED_REST:
        return ""
    beside = "Beside the findings, the largest part" if diagnosis.ranked else "The largest part"
    device = device_bounds(diagnosis.evidence)
    if device is not None:
        name, ms = max(device.parts.as_dict().items(), key=lambda item: item[1])
        return f"{beside} of the step on the device is {LOOKS[name].label}, {_amount(ms, step)}."
    name, ms = max(step.parts.as_dict().items(), key=lambda item: item[1])
    hottest = wording.listing([_line(line, step) for line in _merged(lines)[:HOTTEST]])
    text = f"{beside} of the step is {LOOKS[name].label}, {_amount(ms, step)}; the hottest lines are {hottest}."
    return f"{text}{_outside(step, lines)}"


def _outside(step: Step, lines: Sequence[Line | CodeLine]) -> str:
    """The lines of a large part that is no computing, where the hottest of all are others."""
    name, ms = _largest_outside(step)
    its_own = _merged([line for line in lines if line.part == name])[:HOTTEST]
    hottest = {place for place, _ in _merged(lines)[:HOTTEST]}
    if ms < UNEXPLAINED_SHARE * step.step_ms or not its_own or its_own[0][0] in hottest:
        return ""
    places = wording.listing([_line(line, step) for line in its_own])
    return f" Of {LOOKS[name].label}, {_amount(ms, step)}, most is at {places}."


def _largest_outside(step: Step) -> tuple[str, float]:
    outside = {k: ms for k, ms in step.parts.as_dict().items() if k not in ("forward", "backward", "optimizer")}
    return max(outside.items(), key=lambda item: item[1])


def _lines(evidence: Evidence) -> Sequence[Line | CodeLine] | Missing:
    """Lines by all that they take, where that was watched; else by the operators that they issue."""
    return evidence.hot_lines if isinstance(evidence.code_lines, Missing) else evidence.code_lines


def _merged(lines: Sequence[Line | CodeLine]) -> list[tuple[str, float]]:
    """Place and milliseconds, the most expensive first: a line may take part in several parts of the step."""
    total: dict[str, float] = {}
    for line in lines:
        place = str(line.site)
        total[place] = total.get(place, 0.0) + line.ms_per_step
    return sorted(total.items(), key=lambda item: (-item[1], item[0]))


def _line(line: tuple[str, float], step: Step) -> str:
    place, ms = line
    return f"{wording.clean(place)} ({wording.share(ms / step.step_ms)})"


def _without_step(diagnosis: Diagnosis, step: Missing) -> str:
    end = diagnosis.evidence.job.end
    # The parser of a script's options exits with 2 and no exception.
    why = wording.clean(end.exception) or (f"exit code {end.exit_code}" if end.kind == "crashed" else "")
    failed = f"The job failed with {why}, and no" if why else "No"
    text = f"{failed} steady step was measured: {wording.clean(step.reason)}"
    if step.remedy:
        text += f"; {wording.clean(step.remedy)}"
    if diagnosis.ranked:
        found = wording.plural(len(diagnosis.ranked), "finding below does", "findings below do")
        text += f" ({found} not depend on it)"
    return f"{text}."


def _subject(diagnosis: Diagnosis) -> str:
    ranks, together = diagnosis.evidence.job.seen_ranks, diagnosis.evidence.communication
    node = f" on {wording.clean(diagnosis.evidence.job.node)}" if diagnosis.evidence.job.node else ""
    if diagnosis.evidence.job.traced:
        # How long ranks take says nothing about who is late: they wait for each other.
        return f"The step of rank {diagnosis.evidence.rank}, one of {ranks}," if ranks > 1 else "The step"
    if ranks > 1 and not isinstance(together, Missing):
        if not together.is_compared:
            return f"The steady step of rank {together.late}, which waits least for the others,"
        waited = wording.duration(together.late_ms)
        return f"The steady step of rank {together.late}{node}, for which the others wait {waited},"
    if ranks > 1:
        return f"The steady step of rank {diagnosis.evidence.rank}{node}, the slowest of {wording.count(ranks)},"
    return "The steady step"


def _spent(parts: Parts, part: Part) -> float:
    """Of the steady step: nothing for what lies beside it."""
    return {
        Part.INPUT_WAIT: parts.input_wait,
        Part.GC: parts.gc,
        Part.COMPUTE: parts.compute,
        Part.OTHER: parts.other + parts.checkpoint + parts.logging,
        Part.COMMUNICATION: parts.communication,
    }.get(part, 0.0)


def _words(part: Part, on_cuda: bool) -> str:
    # On the host's clock, which is also that of waiting for the device.
    return "forward, backward and optimizer" if on_cuda and part is Part.COMPUTE else _PART_WORDS[part]


def _amount(ms: float, step: Step) -> str:
    return f"{wording.duration(ms)} ({wording.share(ms / step.step_ms if step.step_ms else 0.0)})"


def _offered(diagnosis: Diagnosis) -> str:
    """The most that an opportunity may give: several exclude each other as often as not."""
    offered, step = diagnosis.opportunities, diagnosis.evidence.step
    if not offered or isinstance(step, Missing):
        return ""
    best = max(offered, key=lambda finding: finding.savings.high_ms / finding.savings.of(step)).savings
    of = "the best: " if len(offered) > 1 else ""
    gain = f" ({of}{wording.speed_up(best.low_ms, best.high_ms, best.of(step))})" if best.high_ms > 0 else ""
    there = wording.plural(len(offered), "opportunity is", "opportunities are")
    return f"; {there} below{gain}{proven(diagnosis)}"


def _between(diagnosis: Diagnosis, step: Step) -> str:
    """What irregular steps add, where a fix saves a part of that."""
    if diagnosis.combined is None or diagnosis.combined.step_ms <= step.step_ms:
        return ""
    whole, more = wording.duration(diagnosis.combined.step_ms), wording.duration(step.irregular_ms)
    return f"; epochs' starts and the like add {more} to each, which makes it {whole}"


def _prospect(diagnosis: Diagnosis) -> str:
    number = len(diagnosis.ills)
    fixes = "the fix below" if number == 1 else f"the {wording.plural(number, 'fix')} below"
    after = combined(diagnosis)
    prospect = f"would bring it to {after}" if after else "would save no time that this run could predict"
    return f"{fixes} {prospect}{proven(diagnosis)}"


def _unexplained(step: Step) -> str:
    """Names the largest part that is not compute, when those parts together are large."""
    if step.step_ms <= 0 or step.step_ms - step.parts.compute < UNEXPLAINED_SHARE * step.step_ms:
        return ""
    name, ms = _largest_outside(step)
    return f", of which {_amount(ms, step)} is {LOOKS[name].label}"


def _nothing_found(diagnosis: Diagnosis, unexplained: bool) -> str:
    kinds = Counter(check.outcome.kind for check in diagnosis.checks)
    blind, crashed = kinds[OutcomeKind.CANNOT_TELL], kinds[OutcomeKind.CRASHED]
    if not diagnosis.checks:
        return "no check was asked to look at it"
    who = "none of the checks that could tell" if blind or crashed else "none of the checks"
    text = f"{who} found {'a cause to fix' if unexplained else 'a cost worth fixing'}"
    if blind or crashed:
        gaps = [f"{blind} could not tell"] * bool(blind) + [f"{crashed} crashed"] * bool(crashed)
        text += f"; {wording.listing(gaps)}"
    silenced = sum(len(check.suppressed) for check in diagnosis.checks)
    if silenced:
        text += f" ({wording.plural(silenced, 'finding is', 'findings are')} suppressed by the configuration)"
    return text
