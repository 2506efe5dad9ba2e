"""A driver connects to a Ray cluster: its workers there are given the probe, and send home what they record.

Ray calls `hook` with the runtime environment that the job asks for, and takes what it returns. A cluster that the
driver starts itself inherits its environment and needs none of this.
"""

import importlib
import logging
import os
import sys

from .. import distant

_PASSED_ON = (
    "PERFDOCTOR_RUN",
    "PERFDOCTOR_WINDOWS",
    "PERFDOCTOR_KEEP_TRACE",
    "PERFDOCTOR_SAMPLE",
    "PERFDOCTOR_APPLY",
)
"""What of ours workers need; how many CPUs can be used here says nothing about another machine."""

_SAYS_WHAT_IS_UPLOADED = (
    "ray._private.worker",
    "ray._private.runtime_env.packaging",
    "ray._private.runtime_env.py_modules",
)
"""Loggers of Ray that print on the driver's stderr what is uploaded; which one it is depends on the version."""


class _Quiet:
    """Keeps to itself what Ray says of our modules: the job's output is to be its own. A filter of loggers."""

    def __init__(self, modules: "list[str]") -> None:
        self.modules = modules
        self.loggers = [logging.getLogger(name) for name in _SAYS_WHAT_IS_UPLOADED]
        for logger in self.loggers:
            logger.addFilter(self)

    def remove(self) -> None:
        for logger in self.loggers:
            logger.removeFilter(self)

    def filter(self, record) -> bool:
        frame = sys._getframe(1) if record.filename == "packaging.py" else None
        while frame is not None:
            # What a package holds is said by whoever uploads it, not by the record.
            if frame.f_code.co_name.startswith("upload_") and frame.f_locals.get("module_path") in self.modules:
                return False
            frame = frame.f_back
        return True


def hook(runtime_env):
    """What Ray asks for: the job's own hook goes first, and what it raises is the job's to see."""
    users = os.environ.get(distant.USERS_HOOK)
    if users:
        module, _, name = users.rpartition(".")
        runtime_env = getattr(importlib.import_module(module), name)(runtime_env)
    try:
        return _with_probe(runtime_env)
    except Exception:  # workers go unobserved
        return runtime_env


def _with_probe(runtime_env):
    environment = os.environ
    run = environment.get("PERFDOCTOR_RUN")
    if run is None or distant.starts_cluster():
        return runtime_env
    from .gathering import Gathering

    token = os.urandom(16).hex()
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    result = dict(runtime_env or {})
    # A directory is packed with its name, a file without its directory's.
    modules = [os.path.join(os.path.dirname(package), "sitecustomize.py"), package]
    Gathering(run, token, _Quiet(modules).remove)
    result["py_modules"] = [*modules, *(result.get("py_modules") or [])]
    ours = {name: environment[name] for name in _PASSED_ON if name in environment}
    result["env_vars"] = {**(result.get("env_vars") or {}), **ours, distant.VARIABLE: f"{token}:{distant.boot()}"}
    return result
