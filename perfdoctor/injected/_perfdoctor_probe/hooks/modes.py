"""Whether a mode of the job's own is around its passes: something of Python's that hears of every operator, or of every
function of torch's (`FlopCounterMode`, a `TorchDispatchMode` that logs, a default device).

Looked for at the start of each forward and backward pass, in a few steps early on and in a few more ever later. Once
modes are there often enough, the steps of a window say what they take (`windows.modes`).
"""

import torch

_FIRST_STEP = 8
_EARLY = 32
"""Steps looked at first: of a mode that is on in every tenth of them some are seen ..."""
_SURE = 8
"""... and so many are enough where it is on in all."""
_LATER = 4
"""Steps looked at each time afterwards."""
_APART = 4
"""Times as many steps from one time to the next: what looks takes the probe's longer way through a step."""
_LEAST = 2
"""Steps with a mode, of the first that are looked at: one in which FLOPs are counted once is none."""
_TORCHS_OWN = (
    "torch.utils.checkpoint",
    "torch._subclasses.fake_tensor",
    "torch._subclasses.functional_tensor",
    "torch._dynamo",
    "torch._functorch",
    "torch._higher_order_ops",
    "torch._inductor",
    "torch.fx",
    "torch.export",
    "torch.nn.attention",
)
"""Modules whose modes torch works with itself; nobody leaves one on."""
_HERE = __name__.partition(".")[0]


class Modes:
    """The kinds that were seen, and in how many steps."""

    def __init__(self, recorder, loop, windows, guarded) -> None:
        self.recorder = recorder
        self.loop = loop
        self.windows = windows
        self.look = guarded("modes", self._look)
        self.reset()

    def reset(self) -> None:
        self.kinds: "dict[type, str]" = {}
        """Classes of modes; `dispatch` or `function`."""
        self.due = _FIRST_STEP
        self.asked = self.looking = False
        self.looked: "set[int]" = set()
        """Steps, since the last record."""
        self.on: "set[int]" = set()

    def at_tick(self, step: int, compiled: bool) -> None:
        """Between two steps: begin to look, or make an end of it."""
        if not self.looking:
            # Whoever is told of passes already (a trial) comes first; a compiled function's modes are Dynamo's affair.
            if step >= self.due and self.loop.on_pass is None and not compiled:
                self.looking = True
                self.loop.on_pass, self.loop.quick = self.look, 0
            return
        seen, on = len(self.looked), len(self.on)
        early = not self.asked and step < _FIRST_STEP + _EARLY and not seen == on >= _SURE
        if seen and not early and (seen >= _LATER or step >= self.due + _EARLY):
            self._end(step, seen, on)

    def stop(self) -> None:
        """Look no longer: others want to be told of passes."""
        if self.loop.on_pass is self.look:
            self.loop.on_pass = None
        self.looking = False

    def _end(self, step: int, seen: int, on: int) -> None:
        self.stop()
        self.due = _APART * step
        if self.kinds:
            self.recorder.record("modes", step=step, looked=seen, on=on)
        if on >= _LEAST and not self.asked:
            self.windows.ask("modes", first=True)
        self.asked = True
        self.looked.clear()
        self.on.clear()

    def _look(self) -> None:
        # An evaluation's modes are not those of the steps.
        if not torch.is_grad_enabled() and self.loop.kind in ("optimizer", "backward"):
            return
        step = self.loop.timeline.step
        self.looked.add(step)
        if not torch._C._len_torch_dispatch_stack() and not torch._C._len_torch_function_stack():
            return
        for kind, modes in (("dispatch", dispatch_modes()), ("function", function_modes())):
            for mode in modes:
                module = type(mode).__module__
                if module.partition(".")[0] != _HERE and not module.startswith(_TORCHS_OWN):
                    self.kinds[type(mode)] = kind
                    self.on.add(step)


def dispatch_modes() -> list:
    """Those that are on, the outermost first."""
    return [torch._C._get_dispatch_stack_at(i) for i in range(torch._C._len_torch_dispatch_stack())]


def function_modes() -> list:
    """The same of functions."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
