"""Exit codes by precedence: broken instrumentation is never hidden by a verdict."""

from __future__ import annotations

from itertools import combinations

import pytest

from perfdoctor.exits import Exit, worst

ORDER = (5, 4, 2, 3, 1, 0)


@pytest.mark.parametrize(("winner", "loser"), list(combinations(ORDER, 2)))
def test_of_two_the_graver_one_wins_in_either_order(winner: int, loser: int) -> None:
    assert int(worst(Exit(winner), Exit(loser))) == int(worst(Exit(loser), Exit(winner))) == winner


def test_every_code_has_its_place() -> None:
    assert sorted(ORDER) == [int(code) for code in Exit]
    assert int(worst(*Exit)) == 5
    assert worst() is Exit.OK
