"""perfdoctor: a performance doctor for PyTorch training jobs."""

from __future__ import annotations

from .version import VERSION as __version__

__all__ = ["__version__"]
