"""What a remedy says of itself."""


class Entry:
    """One remedy."""

    __slots__ = (
        "argument",
        "by_epoch",
        "environment",
        "gpu",
        "home",
        "install",
        "keep",
        "kind",
        "name",
        "numerics",
        "preload",
        "reversible",
        "risk",
        "slot",
        "starts_s",
        "text",
    )

    def __init__(
        self,
        name: str,
        text: str,
        keep: str = "",
        *,
        home: str = "",
        kind: str = "",
        argument: "int | None" = None,
        environment: "dict[str, str] | None" = None,
        preload: "tuple[str, ...]" = (),
        install: str = "",
        numerics: bool = False,
        reversible: bool = True,
        risk: int = 0,
        gpu: bool = False,
        slot: str = "",
        by_epoch: bool = False,
        starts_s: float = 0.0,
    ) -> None:
        """`home` and `kind`: module and class in this package; "" for what needs a new launch.

        `argument`: the number after `=` where none is given; None where there is no such number. `environment`:
        variables that do the same from the start of a launch, "" to unset one. `preload`: libraries, of which a new
        launch loads the first that the machine has; `install`: a command that brings one. `keep`: the lines that make
        it permanent, with `{value}` for the number; by default those that set `environment`. `reversible`: False where
        something stays when the change is taken back. `risk`: 0 changes nothing but time and memory, 1 the order of
        data or of sums, 2 may break the job. `slot`: what it changes; of several with the same one, only one can be in
        place. `by_epoch`: it pays where an epoch begins, so that a trial takes whole epochs. `starts_s`: what its
        first steps take besides, about."""
        self.name = name
        self.text = text
        self.keep = keep or _exported(environment or {})
        self.home = home
        self.kind = kind
        self.argument = argument
        self.environment = environment
        self.preload = preload
        self.install = install
        self.numerics = numerics
        self.reversible = reversible
        self.risk = risk
        self.gpu = gpu
        self.slot = slot or name
        self.by_epoch = by_epoch
        self.starts_s = starts_s

    @property
    def caution(self) -> str:
        """What to know before keeping it; "" where nothing but time and memory changes."""
        if self.risk > 1:
            return "results differ, and it does not suit every job"
        if self.numerics:
            return "the last digits of results differ"
        return "the loader's random draws differ" if self.risk else ""

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
        changed, and what pays by the epoch takes other blocks."""
        return bool(self.keep) and not (self.launches or self.starts_s or self.by_epoch)


def _exported(environment: "dict[str, str]") -> str:
    """The lines of a shell that set these variables."""
    unset = [name for name, value in environment.items() if not value]
    lines = [f"export {name}={value}" for name, value in environment.items() if value]
    return "\n".join([*([f"unset {' '.join(unset)}"] if unset else []), *lines])
