"""What goes wrong with a workload."""

from __future__ import annotations

from schemas.errors import HotbedError


class WorkloadError(HotbedError):
    """A workload failed, hung, or measured less than it was asked to; the run is no result."""
