"""What autograd's anomaly detection costs for one node of the graph: timed with it and without."""

import torch

from . import pricing

_NODES = 20
_LIMIT_NS = 20_000_000


def price() -> "dict | None":
    """Microseconds of a chain of small operators, forward and backward, both ways; None where it is off.

    With it every operator of the forward pass notes its traceback, and every gradient is searched for NaN.
    """
    if not torch.is_anomaly_enabled():
        return None
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        start, gradient = torch.ones(64, requires_grad=True), torch.ones(64)

        def chain(detecting: bool):
            def run() -> None:
                torch.set_anomaly_enabled(detecting, before[1])
                value = start
                for _ in range(_NODES):
                    value = value.neg()
                pricing.run_backward(value, gradient, (start,))

            return run

        try:
            on, off = pricing.in_turns([chain(True), chain(False)], _LIMIT_NS)
        finally:
            torch.set_anomaly_enabled(*before)
    return {"nodes": _NODES, "on_us": on, "off_us": off}
