"""The evaluation window: what is done with one batch of an evaluation after its forward pass, line by line."""

from .lines import LinesWindow


class EvaluationWindow(LinesWindow):
    """Opened in the middle of a step; timing ends with the next forward pass, or with the step."""

    steps = 1
    within_a_step = True

    def __init__(self, sites, loop, compiled: bool) -> None:
        super().__init__(sites, loop, compiled, "evaluation")
        self.times = False

    def open(self) -> None:
        super().open()
        self.times = True

    def is_gone(self) -> bool:
        return self.times and super().is_gone()

    def abandon(self) -> None:
        """Trace no more; may be called again."""
        if self.times:
            self.times = False
            super().abandon()
