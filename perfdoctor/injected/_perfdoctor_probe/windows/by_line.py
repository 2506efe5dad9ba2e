"""Calls of operators by the user's lines that lead to them."""

from ..rows import milliseconds, operator, rounded

_WHOLE = 0.9
"""Of what a line computes: a line that computes as much again is named, and not those that it calls."""
_ALL = 0.98
"""The same, where it computes nothing new; and of what is computed again below it, where one line inside does that."""
_NAMES = 3
"""Operators told of each line, the longest."""
_KEPT = 20
"""Rows kept, the largest."""
_OFTEN = 2
"""Steps that run a line, if each is to do so."""


def by_line(calls) -> "dict[tuple, int]":
    """Nanoseconds below each line that leads to a call, by the lines from the outermost one to it."""
    by_stack: "dict[tuple, int]" = {}
    for one in calls:
        by_stack[one.stack] = by_stack.get(one.stack, 0) + one.spent_ns
    found: "dict[tuple, int]" = {}
    for stack, ns in by_stack.items():
        for depth in range(1, len(stack) + 1):
            found[stack[:depth]] = found.get(stack[:depth], 0) + ns
    return found


def steps_by_line(calls) -> "dict[tuple, set[int]]":
    """The steps that run each line, but for the first, by the lines from the outermost one to it."""
    found: "dict[tuple, set[int]]" = {}
    for step, stack in {(one.step, one.stack) for one in calls if one.step}:
        for depth in range(1, len(stack) + 1):
            found.setdefault(stack[:depth], set()).add(step)
    return found


def whole_line(stack: tuple, spent: "dict[tuple, int]", repeated: "dict[tuple, int]") -> tuple:
    """The outermost line that computes hardly anything new, or the line inside that all of what is not new comes from;
    the innermost one where each computes something new too."""
    lines = [stack[:depth] for depth in range(1, len(stack) + 1)]
    places = (place for place, line in enumerate(lines[:-1]) if repeated[line] >= _WHOLE * spent[line])
    at = next(places, len(lines) - 1)
    for line, inside in zip(lines[at:], lines[at + 1 :]):
        if repeated[line] >= _ALL * spent[line] or repeated[inside] < _ALL * repeated[line]:
            return line
    return stack


def names(calls: list) -> "list[str]":
    """Of the operators that took longest, in order."""
    spent: "dict[object, int]" = {}
    for one in calls:
        spent[one.func] = spent.get(one.func, 0) + one.spent_ns
    longest = sorted(spent, key=lambda func: -spent[func])[:_NAMES]
    return list(dict.fromkeys(operator(func._schema.name) for func in longest))


def weighted_rows(calls: "list[tuple]", judged: int, sites, backward_ns) -> "list[dict]":
    """Calls with the product that makes them needless before them and, behind, whether somebody looks at them, by the
    line of the product, the dearest first, in `judged` steps; `backward_ns` says what a call's node took."""
    rows: "dict[tuple, list[tuple]]" = {}
    for product, one, is_read in calls:
        if product.step and product.stack:
            rows.setdefault(product.stack[-1], []).append((product.step, one, is_read))
    found = []
    for line, seen in rows.items():
        if len({step for step, _, _ in seen}) < min(judged, _OFTEN):
            continue
        made = [one for _, one, _ in seen]
        forward_ns = sum(one.spent_ns for _, one, is_read in seen if not is_read)
        found.append(
            {
                "at": sites.number((*line, None)),
                "ops_per_step": rounded(len(made) / judged),
                "forward_ms": milliseconds(forward_ns, judged),
                "backward_ms": milliseconds(sum(map(backward_ns, made)), judged),
                "operators": names(made),
            }
        )
    return sorted(found, key=lambda row: -row["forward_ms"] - row["backward_ms"])[:_KEPT]


def aside_rows(
    calls: "list[tuple]", spent: "dict[tuple, int]", steps: "dict[tuple, set[int]]", judged: int, sites
) -> "list[dict]":
    """Calls with the numbers that each makes, the dearest line first, in `judged` steps; `spent` and `steps` are of
    every line. Those of the first step, before these, do not count, nor do lines that one of several steps runs and no
    other: an evaluation at the end of an epoch."""
    calls = [(one, size) for one, size in calls if one.step and one.stack]
    chosen = by_line([one for one, _ in calls])
    rows: "dict[tuple, list]" = {}
    sizes: "dict[tuple, dict[int, int]]" = {}
    for one, size in calls:
        line = whole_line(one.stack, spent, chosen)
        if len(steps[line]) < min(judged, _OFTEN):
            continue
        rows.setdefault(line, []).append(one)
        of_step = sizes.setdefault(line, {})
        of_step[one.step] = max(size, of_step.get(one.step, 0))
    told = sorted(rows.items(), key=lambda item: -sum(one.spent_ns for one in item[1]))[:_KEPT]
    return [
        {
            "at": sites.number((*line[-1], None)),
            "ops_per_step": rounded(len(made) / judged),
            "forward_ms": milliseconds(sum(one.spent_ns for one in made), judged),
            "operators": names(made),
            "grows": sizes[line][max(sizes[line])] > sizes[line][min(sizes[line])],
        }
        for line, made in told
    ]
