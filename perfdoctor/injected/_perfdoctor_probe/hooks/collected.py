"""What transformers' trainer keeps of the outputs of an evaluation: it joins each batch's with all before it."""

from .held_out import tensors

PLACE = "transformers.trainer_pt_utils", "EvalLoopContainer", ("add", "to_cpu_and_numpy")
KIND = "collected"
"""Of such calls."""


def size(arguments: tuple) -> int:
    """Bytes that a call is given to keep; 0 of one that makes arrays of what is kept."""
    return sum(one.numel() * one.element_size() for one in tensors(arguments[1:]))
