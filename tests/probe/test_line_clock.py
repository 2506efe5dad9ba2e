"""Time by line, on a clock that only moves when the code under test says so."""

from __future__ import annotations

import sys
import traceback
from multiprocessing.managers import SyncManager
from types import CodeType

import pytest
from users_file import IdleLoop, UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import line_clock
from perfdoctor.injected._perfdoctor_probe.windows.evaluating import LIMIT_NS, EvaluationWindow
from perfdoctor.injected._perfdoctor_probe.windows.line_clock import LineClock
from perfdoctor.injected._perfdoctor_probe.windows.lines import LinesWindow


class Sites(UsersFile):
    def at(self, code: CodeType, line: int) -> tuple[str, int]:
        return code.co_name, line


class RunningJob:
    def __init__(self) -> None:
        self.ns = 0
        self.loop = IdleLoop()
        self.clock = LineClock(Sites(__file__), self.loop)

    def spend(self, us: int) -> None:
        self.ns += 1000 * us

    def rows(self) -> dict[tuple[str, str, bool], int]:
        """Microseconds by function, part and whether it was called inside the part."""
        found: dict[tuple[str, str, bool], int] = {}
        for row in self.clock.summary(1)["lines"]:
            key = (row["site"][0], row["part"], row["called"])
            found[key] = found.get(key, 0) + round(1000 * row["ms_per_step"])
        return found

    def totals(self) -> dict[str, int]:
        """Microseconds by part."""
        found: dict[str, int] = {}
        for (_, part, _), us in self.rows().items():
            found[part] = found.get(part, 0) + us
        assert round(1000 * self.clock.summary(1)["total_ms"]) == sum(found.values())
        return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> RunningJob:
    """The tracer of a coverage tool, if any, is put back."""
    before = sys.gettrace()
    sys.settrace(None)
    one = RunningJob.__new__(RunningJob)
    one.ns = 0
    monkeypatch.setattr(line_clock, "_clock", lambda: one.ns)
    monkeypatch.setattr(timeline, "_clock", lambda: one.ns)
    one.__init__()  # type: ignore[misc]
    yield one
    sys.settrace(before)


def test_each_line_has_what_it_took(bench: RunningJob) -> None:
    def work() -> None:
        bench.ns += 5000
        bench.ns += 7000

    bench.clock.begin()
    work()
    bench.clock.end()
    first = work.__code__.co_firstlineno
    took = {row["site"][1] - first: (row["ms_per_step"], row["share"]) for row in bench.clock.summary(2)["lines"]}
    assert took == {1: (0.0025, pytest.approx(5 / 12)), 2: (0.0035, pytest.approx(7 / 12))}


def test_each_line_counts_how_often_it_ran(bench: RunningJob) -> None:
    def work() -> None:
        for _ in range(6):
            bench.ns += 1000
        [setattr(bench, "ns", bench.ns + 1) for _ in range(8)]

    bench.clock.begin()
    work()
    bench.clock.end()
    first = work.__code__.co_firstlineno
    rows = bench.clock.summary(2)["lines"]
    runs = {row["site"][1] - first: row["runs_per_step"] for row in rows if row["site"][0] == "work"}
    assert runs[2] == 3.0
    # A comprehension goes round on one line, from Python 3.12 on in the same frame.
    assert max(row["runs_per_step"] for row in rows if row["site"][1] - first == 3) >= 4.0


def test_questions_to_a_managers_process_are_counted_by_line(bench: RunningJob) -> None:
    with SyncManager() as manager:
        rows = manager.list([1, 2, 3])

        def work() -> None:
            for number in range(3):
                rows[number], setattr(bench, "ns", bench.ns + 1000)
            bench.ns += 1000

        bench.clock.begin()
        work()
        bench.clock.end()
    first = work.__code__.co_firstlineno
    asked = {row["site"][1] - first: row["asked_per_step"] for row in bench.clock.summary(3)["lines"]}
    assert (asked[2], asked[3]) == (1.0, 0.0)


def test_what_perfdoctor_does_after_the_last_step_is_no_lines(bench: RunningJob) -> None:
    def work() -> None:
        # All on the line that ends the step: the hook of an optimizer is a library's.
        setattr(bench, "ns", 5000), bench.loop.timeline.boundary(), setattr(bench, "ns", 905_000), bench.clock.end()

    bench.clock.begin()
    work()
    assert bench.rows() == {("work", "other", True): 5}


def test_the_innermost_line_of_the_users_has_the_time(bench: RunningJob) -> None:
    def work() -> None:
        bench.spend(5)

    bench.clock.begin()
    work()
    bench.clock.end()
    assert bench.rows() == {("spend", "other", True): 5}


def test_what_a_library_does_is_the_line_that_called_it(bench: RunningJob) -> None:
    def key(value: int) -> int:
        bench.ns += 2000
        return -value

    def work() -> None:
        sorted([1, 2, 3], key=key)
        traceback.format_list([])
        bench.ns += 4000

    bench.clock.begin()
    work()
    bench.clock.end()
    assert bench.rows() == {("key", "other", True): 6, ("work", "other", True): 4}


def test_time_goes_to_the_part_of_the_step_that_it_passes_in(bench: RunningJob) -> None:
    line = bench.loop.timeline

    def make() -> None:
        bench.ns += 3000

    def step() -> None:
        bench.ns += 1000
        line.enter(timeline.INPUT)
        make()
        bench.ns += 2000
        line.leave(timeline.INPUT)
        bench.ns += 5000

    bench.clock.begin()
    step()
    bench.clock.end()
    # The loop itself was there before the wait began; what makes the batch was called inside it.
    assert bench.rows() == {
        ("step", "other", True): 6,
        ("step", "input_wait", False): 2,
        ("make", "input_wait", True): 3,
    }
    assert bench.totals() == {"other": 6, "input_wait": 5}


def test_a_line_that_makes_batches_has_its_time_by_loader(bench: RunningJob) -> None:
    line = bench.loop.timeline

    def make(us: int) -> None:
        bench.ns += 1000 * us

    def step() -> None:
        for loader, us in ((3, 6), (5, 2), (-1, 2)):
            bench.loop.drawing = [loader, 0, 4]
            line.enter(timeline.INPUT)
            make(us)
            line.leave(timeline.INPUT)
        make(1)

    bench.clock.begin()
    step()
    bench.clock.end()
    loaders = {(row["site"][0], row["part"]): row["loaders"] for row in bench.clock.summary(1)["lines"]}
    # What it takes for a loader that is not known is nobody's.
    assert loaders == {("make", "input_wait"): [[3, 0.6], [5, 0.2]], ("make", "other"): []}


def test_one_line_that_holds_two_parts_is_divided(bench: RunningJob) -> None:
    line = bench.loop.timeline

    def waited() -> None:
        (line.enter(timeline.INPUT), pass_time(4000), line.leave(timeline.INPUT), pass_time(1000))

    # A library's, for the line clock.
    pass_time = eval("lambda ns: setattr(bench, 'ns', bench.ns + ns)", {"bench": bench})
    bench.clock.begin()
    waited()
    bench.clock.end()
    assert bench.totals() == {"input_wait": 4, "other": 1}


def test_a_loss_is_part_of_the_forward_pass_once_it_is_known_to_be_one(bench: RunningJob) -> None:
    line = bench.loop.timeline

    def step() -> None:
        line.stack.append(timeline.LOSS)
        bench.ns += 2000
        line.enter(timeline.BACKWARD)
        bench.ns += 6000
        line.leave(timeline.BACKWARD)

    bench.clock.begin()
    step()
    bench.clock.end()
    assert bench.totals() == {"forward": 2, "backward": 6}


def test_a_line_in_which_a_step_ends_keeps_what_it_took_before_and_after(bench: RunningJob) -> None:
    """`loss.backward(); optimizer.step()`: the window closes inside the second, on the boundary."""
    line = bench.loop.timeline

    def step() -> None:
        (
            line.enter(timeline.BACKWARD),
            pass_time(6000),
            line.leave(timeline.BACKWARD),
            line.boundary(),
            pass_time(1000),
        )

    pass_time = eval("lambda ns: setattr(bench, 'ns', bench.ns + ns)", {"bench": bench})
    bench.clock.begin()
    step()
    bench.clock.end()
    assert bench.totals() == {"backward": 6, "other": 1}


def test_functions_that_run_already_are_watched_and_let_go(bench: RunningJob) -> None:
    def inner() -> None:
        bench.clock.begin()
        bench.ns += 1000

    inner()
    bench.ns += 2000
    bench.clock.end()
    assert sys.gettrace() is None
    assert sys._getframe().f_trace is None
    name = "test_functions_that_run_already_are_watched_and_let_go"
    assert bench.rows() == {("inner", "other", False): 1, (name, "other", False): 2}


def test_exceptions_and_generators_leave_the_right_line_behind(bench: RunningJob) -> None:
    def numbers():
        bench.ns += 1000
        yield 1
        bench.ns += 1000
        yield 2

    def fails() -> None:
        bench.ns += 3000
        raise ValueError

    def step() -> None:
        for _ in numbers():
            bench.ns += 10_000
        try:
            fails()
        except ValueError:
            bench.ns += 20_000

    bench.clock.begin()
    step()
    bench.clock.end()
    assert bench.rows() == {
        ("numbers", "other", True): 2,
        ("fails", "other", True): 3,
        ("step", "other", True): 40,
    }


def test_a_tracer_of_the_jobs_own_stays(bench: RunningJob) -> None:
    def theirs(frame, event, arg):
        return None

    window = LinesWindow(Sites(__file__), bench.loop, compiled=False)
    assert window.obstacle() == ""
    window.open()
    sys.settrace(theirs)
    window.close(1)
    assert sys.gettrace() is theirs
    assert "traces the job's lines" in window.obstacle()
    sys.settrace(None)
    assert "torch.compile" in LinesWindow(Sites(__file__), bench.loop, compiled=True).obstacle()


def test_an_evaluation_is_timed_for_a_while_at_most(bench: RunningJob) -> None:
    def work() -> None:
        bench.ns += LIMIT_NS
        bench.ns += 1000
        bench.ns += LIMIT_NS

    window = EvaluationWindow(Sites(__file__), bench.loop, compiled=False)
    window.open()
    work()
    assert sys.gettrace() is None
    assert not window.is_gone(), "it has ended by itself, and not with its thread"
    first = work.__code__.co_firstlineno
    assert {row["site"][1] - first for row in window.close(1)["lines"] if row["site"][0] == "work"} == {1, 2}
    again = EvaluationWindow(Sites(__file__), bench.loop, compiled=False)
    again.open()
    again.abandon()
    assert sys.gettrace() is None and not again.is_gone()
    work()
    assert all(row["site"][0] != "work" for row in again.close(1)["lines"])
