"""The model, compiled, and a compiled model in Python."""

import torch

from ..compiler import lacking
from .base import Remedy, UnsuitableError
from .precision import border

_compiled: dict = {}
"""What was compiled, by the module's id(): a trial puts it in place many times, and compiles once. The job is thrown
away afterwards, so that nothing need ever leave."""


class Compile(Remedy):
    """`torch.compile` of the forward of each module that the loop calls. The modules themselves stay what they are,
    so that the optimizer, a checkpoint and the loop find what they know."""

    settle = 5
    backend = "inductor"

    def apply(self) -> None:
        roots = border(self.probe)
        device = next(roots[0].parameters()).device.type
        obstacle = lacking(device) if self.backend == "inductor" else ""
        if obstacle:
            raise UnsuitableError(obstacle)
        if any("forward" in module.__dict__ for module in roots):
            raise UnsuitableError("something has put a forward of its own in the model's place")
        # The probe's stand-in would take the job for one that compiles.
        compiler = getattr(torch.compile, "__wrapped__", torch.compile)
        import torch._dynamo as dynamo

        self.dynamo = dynamo
        self.suppressed = dynamo.config.suppress_errors
        # What cannot be compiled runs as it is; then the trial says so, and the job does not fail.
        dynamo.config.suppress_errors = True
        self.frames = self._frames()
        self.roots = roots
        for module in roots:
            if id(module) not in _compiled:
                _compiled[id(module)] = compiler(module.forward, backend=self.backend)
            module.__dict__["forward"] = _compiled[id(module)]

    def withdraw(self) -> None:
        for module in getattr(self, "roots", ()):
            module.__dict__.pop("forward", None)
        if hasattr(self, "suppressed"):
            self.dynamo.config.suppress_errors = self.suppressed

    def lost(self) -> str:
        frames = self._frames()
        if not frames.get("ok"):
            return "torch.compile could compile nothing of it"
        before, now = (some.get("total", 0) - some.get("ok", 0) for some in (self.frames, frames))
        return "torch.compile failed on a part of it" if now > before else ""

    def _frames(self) -> dict:
        return dict(self.dynamo.utils.counters["frames"])


class CompileOff(Remedy):
    """What the job compiles runs in Python, by torch's own switch; what was compiled is kept for afterwards."""

    def apply(self) -> None:
        if not self.probe.discovery.compiled:
            raise UnsuitableError("the job does not call torch.compile")
        if not hasattr(torch.compiler, "set_stance"):
            raise UnsuitableError("this version of torch has no switch for it (2.6 has)")
        import torch._dynamo.eval_frame as frames

        self.frames = frames
        self.stance = frames._set_stance(frames.DynamoStance("force_eager"))

    def withdraw(self) -> None:
        if hasattr(self, "stance"):
            self.frames._set_stance(self.stance)

    def lost(self) -> str:
        changed = self.frames._stance.stance != "force_eager"
        return "the job has set a stance of its own" if changed else ""
