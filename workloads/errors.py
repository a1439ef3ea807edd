"""Errors of workloads."""

from __future__ import annotations

from schemas.errors import HotbedError


class WorkloadError(HotbedError):
    """Error of a workload that failed, hung, or measured less than asked; the run is no result."""
