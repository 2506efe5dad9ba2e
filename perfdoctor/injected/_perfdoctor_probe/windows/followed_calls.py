"""What is known of functions that are followed, and of their calls: nothing of the job's after a call."""

import inspect


class Function:
    """One of the user's, or a library's that reads files for the user, by its code."""

    __slots__ = (
        "alone",
        "calls",
        "code",
        "compared",
        "differs",
        "is_let_go",
        "kind",
        "moves",
        "names",
        "reader",
        "returned",
        "spent_ns",
    )

    def __init__(self, code, reader: str = "") -> None:
        self.code = code
        self.reader = reader
        """Its name, if it is a library's."""
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        self.names = (*code.co_varnames[:count], *code.co_freevars)
        """What a call of it is given: its arguments, and what it closes over."""
        self.kind = ""
        """The class of what it makes."""
        self.calls = self.spent_ns = 0
        self.returned: "dict[bytes, bytes]" = {}
        """By its arguments."""
        self.compared: "dict[bytes, int]" = {}
        """How often, by them."""
        self.alone: "list[int]" = []
        """Nanoseconds of calls to which nobody listened."""
        self.is_let_go = False
        self.differs = False
        """It has returned something else for the same arguments, or what cannot be compared."""
        self.moves = False
        """Its result is not all that a call of it is for."""

    @property
    def makes(self) -> bool:
        """Whether it makes an object: that is its result."""
        return self.code.co_name == "__init__"


class Call:
    """One that was looked at."""

    __slots__ = (
        "above",
        "at",
        "began_ns",
        "frame",
        "function",
        "is_alone",
        "key",
        "learned",
        "loader",
        "lost_ns",
        "made",
        "number",
        "objects",
        "part",
        "spent_ns",
        "states",
        "taken_ns",
        "telling",
    )

    def __init__(self, function: Function, above: "Call | None", at: "tuple | None", part: int, loader: int) -> None:
        self.function = function
        self.above = above
        """The innermost call that it was made in."""
        self.at = at
        """The user's line that called it, as code and number; None where a library did."""
        self.part = part
        """As of the timeline."""
        self.loader = loader
        """That the loop waits for; -1 for none."""
        self.frame = self.made = self.states = None
        self.objects: tuple = ()
        self.key: "bytes | None" = None
        """Of its arguments; None where they cannot be compared."""
        self.number: "bytes | None" = None
        """Of its result; None where it cannot be compared, or there is none."""
        self.learned = 0
        """Of the modules that it has called, what tells whether they have been trained since."""
        self.telling = 0
        self.is_alone = False
        """Nobody listened to it."""
        self.began_ns = self.lost_ns = self.spent_ns = 0
        self.taken_ns = 0
        """Off what it took, for telling of what it called and for waits."""

    def forget(self) -> None:
        """It has returned: nothing of the job's is kept."""
        self.frame = self.made = self.states = None
        self.objects = ()


def moves(call: "Call | None") -> None:
    """What it returns is not all that it is for, nor what those return that it was made in."""
    while call is not None:
        call.function.moves = call.function.is_let_go = True
        call = call.above
