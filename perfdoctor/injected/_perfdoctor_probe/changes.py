"""What was put in the place of what in libraries, so that it can be put back."""

_ABSENT = object()


class Changes:
    """Stand-ins in place."""

    def __init__(self) -> None:
        self.made: "list[tuple]" = []
        self.undone: "list[tuple]" = []

    def put(self, owner, name: str, stand_in, part: str = "") -> None:
        """Have `owner.name` be `stand_in`."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, stand_in)
        self.made.append((part, owner, name, vars(owner)[name], before))

    def when_undone(self, undo, part: str = "") -> None:
        """Call `undo` when the part is taken back."""
        self.undone.append((part, undo))

    def take_back(self, kept: "tuple | set" = ()) -> None:
        """Everything is as before, but for the `kept` parts, and for what others have changed since."""
        for part, owner, name, ours, before in reversed(self.made):
            if part in kept or vars(owner).get(name) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        for part, undo in self.undone:
            if part not in kept:
                undo()
