"""Whether a thread still runs: its number alone does not say, and is given to others after its end."""

import sys
import threading


def is_alive(ident: int) -> bool:
    """Threads that C++ code started are missing in the first, which is the cheaper one to ask."""
    return ident in threading._active or ident in sys._current_frames()
