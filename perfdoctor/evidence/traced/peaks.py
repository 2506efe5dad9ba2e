"""What devices do at most, by their data sheets: dense rates, without sparsity."""

from __future__ import annotations

import re

from ..model import Missing, Peaks

_SHEETS: tuple[tuple[str, Peaks], ...] = (
    (r"B200", Peaks(75, 1100, 2250, 8000, "NVIDIA Blackwell datasheet, HGX B200")),
    (r"H200", Peaks(67, 495, 989, 4800, "NVIDIA H200 datasheet")),
    (r"H100.*(PCIe|NVL)", Peaks(51, 378, 756, 2000, "NVIDIA H100 datasheet, PCIe")),
    (r"H100", Peaks(67, 495, 989, 3350, "NVIDIA H100 datasheet, SXM")),
    (r"A100.*80GB", Peaks(19.5, 156, 312, 2039, "NVIDIA A100 datasheet")),
    (r"A100|PG509", Peaks(19.5, 156, 312, 1555, "NVIDIA A100 datasheet")),
    (r"A10\b", Peaks(31.2, 62.5, 125, 600, "NVIDIA A10 datasheet")),
    (r"L40S", Peaks(91.6, 183, 362, 864, "NVIDIA L40S datasheet")),
    (r"L4\b", Peaks(30.3, 60, 121, 300, "NVIDIA L4 datasheet")),
    (r"V100", Peaks(15.7, 0, 125, 900, "NVIDIA V100 datasheet, SXM2")),
    (r"T4\b", Peaks(8.1, 0, 65, 320, "NVIDIA T4 datasheet")),
    (r"RTX 4090", Peaks(82.6, 82.6, 165, 1008, "NVIDIA Ada GPU architecture whitepaper")),
    (r"RTX 3090(?! Ti)", Peaks(35.6, 35.6, 71, 936, "NVIDIA GA102 whitepaper")),
    (r"MI300X", Peaks(163.4, 653.7, 1307, 5300, "AMD Instinct MI300X datasheet")),
)
"""Pattern of the device's name, in the order in which they are asked; and its rates."""


def peaks_of(device: str) -> Peaks | Missing:
    """By the name that the trace gives it."""
    for pattern, peaks in _SHEETS:
        if re.search(pattern, device):
            return peaks
    return Missing(f"the rates of {device} are not known here" if device else "the trace does not name the device")
