"""Squares of parameters that are added up for a penalty, whose gradients an optimizer adds by itself."""

from .followed import Other, is_of_parameter


def decayed(args: tuple, known) -> "Other | None":
    """A sum of all squares; the decay of an optimizer goes through the parameter once."""
    found = known(args[0])
    if found is None or found.is_passing or not is_of_parameter(found.args) or tuple(args[0].shape) != found.shape:
        return None
    parameter = found.args[0]
    return Other(
        "penalty",
        lambda: parameter.detach().add(parameter.detach(), alpha=1e-4),
        [found],
        found.shape,
        backward=lambda made: None,
        instead_of=False,
    )
