"""What stands between our hooks and the job: a hook that raises is switched off, and the job never sees it."""

import _signal


class Guard:
    """Wraps hooks. `noted(hook, error)` is told of each failure."""

    def __init__(self, noted) -> None:
        self.noted = noted
        self.off: "set[str]" = set()

    def fault(self, hook: str, error: Exception) -> None:
        """Switch `hook` off."""
        self.off.add(hook)
        try:
            self.noted(hook, error)
        except Exception:  # with nothing left to note it in, silence
            pass

    def caught(self, hook: str, error: Exception) -> None:
        """`hook` raised: switch it off. Called where the error was caught; what is the job's own goes on to it."""
        if _from_signal_handler(error):
            raise error
        self.fault(hook, error)

    def __call__(self, hook: str, function):
        """`function`, switched off for good by its first exception. `StopJob` is no `Exception`."""
        off = self.off

        def call(*args):
            if hook in off:
                return None
            try:
                return function(*args)
            except Exception as error:
                self.caught(hook, error)
                return None

        return call


def _from_signal_handler(error: BaseException) -> bool:
    """Whether a signal handler of the job raised it, which happened to run while our code did."""
    handlers = set()
    for number in _signal.valid_signals():
        handler = _signal.getsignal(number)
        handlers.add(getattr(getattr(handler, "__func__", handler), "__code__", None))
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False
