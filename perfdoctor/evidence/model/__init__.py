"""What a check may ask: one frozen, typed object per rank, in which a quantity is a value or `Missing`.

Conventions: names carry units; "per step" means per steady step; a share is a fraction of 1. Nothing here
touches an operating system, a clock or torch, so evidence can be built by hand in a test.

What the probe has measured is declared where the recording is decoded, and is here as it is; the modules beside this
one hold what is derived from several records.
"""

from __future__ import annotations

from ...recording.base import *
from ...recording.growth import AlikeHandlers as AlikeHandlers
from ...recording.growth import GrowingContainer as GrowingContainer
from ...recording.growth import GrowingGraph as GrowingGraph
from ...recording.growth import GrowingHooks as GrowingHooks
from ...recording.growth import GrowingTensor as GrowingTensor
from ...recording.growth import Wrapped as Wrapped
from ...recording.host import GpuProcess as GpuProcess
from ...recording.layers import *
from ...recording.libraries import *
from ...recording.lines import *
from ...recording.loading import FixedPart as FixedPart
from ...recording.loading import SamplesAsked as SamplesAsked
from ...recording.locks import *
from ...recording.machine import *
from ...recording.modes import *
from ...recording.modules_again import *
from ...recording.operators import *
from ...recording.process import ProbeFault as ProbeFault
from ...recording.process import Saved as Saved
from ...recording.repeats import *
from ...recording.settings import *
from ...recording.spark import *
from ...recording.timings import *
from .activity import *
from .anatomy import *
from .causes import *
from .checkpoints import *
from .communication import *
from .compilation import *
from .concurrency import *
from .deterministic import *
from .device import *
from .evidence import *
from .growth import *
from .host import *
from .job import *
from .loading import *
from .memory import *
from .modes import *
from .profiled import *
from .step import *
