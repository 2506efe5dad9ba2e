"""What ended a process, or its training, in words."""

_LONGEST = 300
"""Characters."""
_OF_A_PEER = "by peer"
"""In what a rank raises that has lost another one: `Connection closed by peer`, `Connection reset by peer`."""


def told(error: BaseException) -> str:
    """Its type and message; of Ray's error for a training whose workers failed, the worker that failed first and why:
    its own message begins with a traceback."""
    name = type(error).__name__
    workers = getattr(error, "worker_failures", None)
    if isinstance(workers, dict) and workers:
        rank, first = min(workers.items(), key=_first)
        return f"{name}: rank {rank} {_fate(first)}"[:_LONGEST]
    return f"{name}: {error}"[:_LONGEST]


def _first(failed: tuple) -> tuple:
    """Those that died before those that raised, and who only lost another one last."""
    rank, error = failed
    return _cause(error) is None, _OF_A_PEER in str(error), rank


def _fate(error: BaseException) -> str:
    cause = _cause(error)
    if cause is not None:
        return "died: " + " ".join(str(cause).split())
    return f"raised {type(error).__name__}: {error}"


def _cause(error: BaseException):
    """Of a worker that Ray hears from no more, why; else None."""
    return getattr(error, "health_check_failure", None)
