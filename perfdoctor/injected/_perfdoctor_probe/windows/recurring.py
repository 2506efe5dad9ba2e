"""What comes again at equal distances: cycles of steps, and single long ones such as epochs' starts."""

from .. import records
from .cycles import Cycles
from .long_steps import LongSteps

_BETWEEN = (("between", "repeats"), ("epochs", "same"))
"""Windows that look at what lies between two steps, where those are planned that look so at steps."""


class Recurring:
    """Windows see whole cycles: they are opened again once there is one. Of longer ones, such as epochs, what lies
    between two steps is looked at where it is known when it comes again."""

    def __init__(self, recorder, loop, loading, windows) -> None:
        self.recorder = recorder
        self.loop = loop
        self.loading = loading
        self.windows = windows
        self.reset()

    def reset(self) -> None:
        self.cycles = Cycles()
        self.long_steps = LongSteps()

    def look(self, line, rows: "list[tuple]", marked: "set[int]") -> None:
        """`rows`: the newest steps, as in `records.STEP_COLUMNS`. `marked`: those that our windows lengthened."""
        started = {row[1] for row in self.loading.rows if row[4]}
        first = line.step - len(rows)
        wall, micro, saving = (records.STEP_COLUMNS.index(name) for name in ("wall_us", "micro", "checkpoint_us"))
        # What a window lengthens is no long step of the job's.
        found = self.cycles.look(
            first,
            [
                (0 if step in marked else row[wall], row[micro], row[saving] > 0 or step in started)
                for step, row in enumerate(rows, first)
            ],
        )
        if found is not None:
            self.recorder.record("cycle", step=line.step, **found)
            self.windows.cycle = found["length"]
            self.windows.replan(line.step)
            self.loop.due_ns = 0
        wanted = [name for name, one in _BETWEEN if one in self.windows.planned]
        if self.cycles.length == 1 and wanted:
            long = self.long_steps.look(first, [row[wall] for row in rows], started, marked)
            if long is not None:
                self.recorder.record("long_steps", step=line.step, **long)
                self.windows.appoint(wanted, **long)
