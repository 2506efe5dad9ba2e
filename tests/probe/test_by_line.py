"""Which of the lines that lead to a call is named."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perfdoctor.injected._perfdoctor_probe.windows.by_line import by_line, whole_line

OUTER, BATCH, OTHER, MODEL = (("train.py", line, "main") for line in (33, 17, 18, 9))


@pytest.mark.parametrize(
    ("again", "new", "named"),
    [
        ({(OUTER, BATCH): 90}, {(OUTER, MODEL): 50}, (OUTER, BATCH)),  # the outer line computes other things too
        ({(OUTER, BATCH): 95}, {(OUTER, MODEL): 5}, (OUTER, BATCH)),  # few, but one line inside does it all
        ({(OUTER, BATCH): 50, (OUTER, OTHER): 45}, {(OUTER, MODEL): 5}, (OUTER,)),
        ({(OUTER, BATCH): 100}, {}, (OUTER,)),  # nothing else
        ({(OUTER,): 90, (OUTER, BATCH): 5}, {(OUTER, MODEL): 5}, (OUTER,)),
    ],
)
def test_the_outermost_line_is_named_that_computes_as_much_again(
    again: dict[tuple[object, ...], int], new: dict[tuple[object, ...], int], named: tuple[object, ...]
) -> None:
    def calls(of: dict[tuple[object, ...], int]) -> list[SimpleNamespace]:
        return [SimpleNamespace(stack=stack, spent_ns=ns) for stack, ns in of.items()]

    spent, repeated = by_line([*calls(again), *calls(new)]), by_line(calls(again))
    assert whole_line(next(iter(again)), spent, repeated) == named
