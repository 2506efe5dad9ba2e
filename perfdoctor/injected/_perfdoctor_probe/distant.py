"""A process that an engine has placed where the run directory is not: it records beside the engine's own files.

Runs before the job's first line, so only built-in and already loaded modules are used.
"""

import os
import sys
import time

from .imports import IMPORTS

VARIABLE = "PERFDOCTOR_RAY"
"""For workers of a cluster that was there before the job: the token of the run and, behind a colon, the boot id of the
machine that its directory is on."""
HOOK = "RAY_RUNTIME_ENV_HOOK"
"""Ray calls the function of this name when a driver connects to a cluster."""
USERS_HOOK = "PERFDOCTOR_RAY_HOOK"
"""What the job had in it."""
OURS = "_perfdoctor_probe.engines.ray_driver.hook"

token = ""
"""Of the run that this process sends home what it records; "" where it writes into the run directory."""
outpost = None
"""What sends it."""


def place(run: str) -> str:
    """The directory to record in: `run` where it can be reached from here. Another one is made only with torch."""
    global token
    environment = os.environ
    told = environment.pop(VARIABLE, None)
    if told is None:
        return run
    name, _, home = told.partition(":")
    # A directory on shared storage holds files of other machines, but not their sockets.
    if home == boot() and os.path.isdir(run):
        return run
    token = name
    here = f"{_session()}/perfdoctor-{os.getpid()}-{time.time_ns()}"
    # For what this process starts: it writes there, and is sent home with it.
    environment["PERFDOCTOR_RUN"] = here
    return here


def settle(run: str) -> None:
    """Torch was imported: what is recorded from here on is worth a directory, and the way home."""
    global outpost
    if token:
        from .engines.outpost import Outpost

        outpost = Outpost(run, token)


def _session() -> str:
    """Where Ray keeps what this node needs while the cluster is up: its workers are told of a socket in there."""
    for word in getattr(sys, "orig_argv", []):
        name, _, value = word.partition("=")
        if name in ("--raylet-name", "--object-store-name") and "/sockets/" in value:
            return value.rpartition("/sockets/")[0]
    return os.environ.get("TMPDIR") or "/tmp"


def announce() -> None:
    """Have Ray ask us, should this process become a driver; first whom it would have asked."""
    environment = os.environ
    users = environment.get(HOOK)
    if users != OURS:
        if users:
            environment[USERS_HOOK] = users
        environment[HOOK] = OURS


def await_ray(recorder) -> None:
    """Once the job imports Ray: be asked, and write down where Ray will not ask us. Three ways to its workers are such
    that no probe can follow."""

    def note(how: str) -> None:
        recorder.record("ray", unseen=how)
        recorder.flush()

    def under_uv(module) -> None:
        # `ray.init` is about to ask the same: Ray's own hook for uv takes the place of ours.
        if module._get_uv_run_cmdline() and not starts_cluster():
            note("uv")

    IMPORTS.awaited["ray"] = lambda module: announce()
    IMPORTS.awaited["ray.util.client.worker"] = lambda module: note("client")
    IMPORTS.awaited["ray.dashboard.modules.job.sdk"] = lambda module: note("submitted")
    if os.environ.get("RAY_ENABLE_UV_RUN_RUNTIME_ENV") != "0":
        IMPORTS.awaited["ray._private.runtime_env.uv_runtime_env_hook"] = under_uv


def starts_cluster() -> bool:
    """Whether the call of `ray.init` that asks us finds no cluster to connect to."""
    frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != (
        "init",
        "ray._private.worker",
    ):
        frame = frame.f_back
    asked = frame.f_locals if frame is not None else {}
    services = sys.modules["ray._private.services"]
    return services.canonicalize_bootstrap_address(asked.get("address"), asked.get("_temp_dir")) is None


def boot() -> str:
    """Tells machines of one name apart, and a machine from itself before it was started anew; "" where none is told."""
    try:
        descriptor = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 64).decode().strip()
        finally:
            os.close(descriptor)
    except (OSError, UnicodeDecodeError):
        return ""
