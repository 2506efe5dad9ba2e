"""Waits for `import torch` with a finder that lets everything else through and removes itself."""

import sys
import time

from .recorder import Recorder


class _TorchFinder:
    """Answers for the exact name `torch` only, with the spec that the other finders give.

    The loader keeps its type and place; only its `exec_module` is shadowed on the instance, and the shadow is
    lifted before the real one runs. Looking for a spec without importing (`importlib.util.find_spec`, as
    transformers does) leaves the finder in place.
    """

    def __init__(self, recorder: Recorder, after_fork: list, start_ns: int) -> None:
        self.recorder = recorder
        self.after_fork = after_fork
        self.start_ns = start_ns
        self.missed = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                self._shadow(spec.loader)
                return spec
        if not self.missed:
            self.missed = True
            self.failed(ModuleNotFoundError("No module named 'torch'"))
        return None

    def _shadow(self, loader) -> None:
        real = getattr(loader, "exec_module", None)
        if real is None:
            return

        def exec_module(module):
            loader.__dict__.pop("exec_module", None)
            self.remove()
            try:
                real(module)
            except BaseException as error:
                self.failed(error)
                raise
            self.awake()

        # Python leaves the frames of its import system out of a traceback, by file name: a torch that cannot
        # be imported is then reported in the very words of a run without us.
        exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap>")
        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader without instance attributes: the job runs unobserved
            pass

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def failed(self, error: BaseException, kind: str = "torch", **what: str) -> None:
        self.recorder.record(kind, **what, error=f"{type(error).__name__}: {error}"[:300])
        self.recorder.flush()

    def awake(self) -> None:
        try:
            from . import probe

            probe.install(self.recorder, self.after_fork, self.start_ns)
        except Exception as error:
            self.failed(error, "fault", hook="install")


def when_imported(recorder: Recorder, after_fork: list, began_ns: int) -> None:
    """Install the probe right after the job's own `import torch`."""
    finder = _TorchFinder(recorder, after_fork, time.perf_counter_ns() - began_ns)
    if "torch" in sys.modules:  # a `.pth` file of the environment was faster
        finder.awake()
    else:
        sys.meta_path.insert(0, finder)
