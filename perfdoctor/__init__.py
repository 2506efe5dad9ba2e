"""perfdoctor: a performance doctor for PyTorch training jobs."""

from __future__ import annotations

from .version import VERSION

__version__ = VERSION

__all__ = ["__version__"]
