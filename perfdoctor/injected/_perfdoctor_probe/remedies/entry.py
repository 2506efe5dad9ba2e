"""What a remedy says of itself."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Entry:
    """One remedy."""

    name: str
    text: str
    keep: str = ""
    """The lines that make it permanent, with `{value}` for the number; by default those that set `environment`."""
    home: str = ""
    """Module and class in this package, `module.Class`; "" for what needs a new launch."""
    argument: "int | None" = None
    """The number after `=` where none is given; None where there is no such number."""
    environment: "dict[str, str]" = field(default_factory=dict)
    """Variables that do the same from the start of a launch, "" to unset one."""
    preload: "tuple[str, ...]" = ()
    """Libraries, of which a new launch loads the first that the machine has."""
    install: str = ""
    """A command that brings one."""
    numerics: bool = False
    reversible: bool = True
    """False where something stays when the change is taken back."""
    risk: int = 0
    """0 changes nothing but time and memory, 1 the order of data or of sums, 2 may break the job."""
    gpu: bool = False
    slot: str = ""
    """What it changes, by default what its name says; of several with the same one, only one can be in place."""
    by_epoch: bool = False
    """It pays where an epoch begins, so that a trial takes whole epochs."""
    by_save: bool = False
    """It pays where the loop calls `torch.save`, so that a trial takes steps from one such call to another."""
    warns: str = ""
    """What to know before keeping it where results are the same."""
    starts_s: float = 0.0
    """What its first steps take besides, about."""

    def __post_init__(self) -> None:
        self.keep = self.keep or _exported(self.environment)
        self.slot = self.slot or self.name

    @property
    def caution(self) -> str:
        """What to know before keeping it; "" where nothing but time and memory changes."""
        if self.risk > 1:
            return "results differ, and it does not suit every job"
        if self.numerics:
            return "the last digits of results differ"
        return "the loader's random draws differ" if self.risk else self.warns

    @property
    def launches(self) -> bool:
        """Whether it needs a launch of its own: it is read when the process starts."""
        return not self.home

    @property
    def language(self) -> str:
        """Of `keep`."""
        return "bash" if self.environment or self.preload else "python"

    @property
    def combinable(self) -> bool:
        """Whether it can be tried together with others, and be kept. What compiles would do so anew for what else is
        changed, and what pays by the epoch or the save takes other blocks."""
        return bool(self.keep) and not (self.launches or self.starts_s or self.by_epoch or self.by_save)


def _exported(environment: "dict[str, str]") -> str:
    """The lines of a shell that set these variables."""
    unset = [name for name, value in environment.items() if not value]
    lines = [f"export {name}={value}" for name, value in environment.items() if value]
    return "\n".join([*([f"unset {' '.join(unset)}"] if unset else []), *lines])
