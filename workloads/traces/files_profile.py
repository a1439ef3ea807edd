"""A profile by size, measured with fio on files on one disk: one request at a time, at random in
all of the files, as requests of several workloads reach a shared disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import UserError
from testbed.stores.nfs.wire import ETHERNET_MTU, network_of
from workloads.traces.device_profile import LARGE, SIZES, Measurement, job_text, jobs_of, part_of

FILE_SIZES = (*SIZES, 524288, 1048576)
_LEAST = 16 * LARGE


@dataclass(frozen=True)
class FilesPlan:
    """Measurements on files.

    Args:
        files: paths; the files exist, and their content is overwritten.
        each: bytes of each file.
        seconds: length of each measurement.
    """

    files: tuple[str, ...]
    each: int
    seconds: float = 2.0

    def __post_init__(self) -> None:
        if not self.files or any(":" in name for name in self.files):
            raise UserError("name one file or more, none with a colon in its path")
        if self.each < _LEAST:
            raise UserError(
                f"files of {self.each} bytes are too small to profile", allowed="at least 16 MiB"
            )

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Random requests of each kind and size."""
        whole = self.each * len(self.files)
        kinds = ("read", "write")
        return tuple(Measurement(kind, s, 0, whole, 1) for kind in kinds for s in FILE_SIZES)

    @property
    def total_s(self) -> float:
        """Return the seconds that all measurements take."""
        return self.seconds * len(self.measurements)

    def job_file(self) -> str:
        """Return a fio job file that measures everything, one measurement after the other. Writes
        are synchronous, like those of an NFS server (``FILE_SYNC``)."""
        own = [f"filename={':'.join(self.files)}", "file_service_type=random:1"]
        own += [f"size={self.each * len(self.files)}", "sync=1", "ioengine=psync"]
        jobs = {m.name: [f"rw=rand{m.kind}", f"bs={m.size}"] for m in self.measurements}
        return job_text(own, self.seconds, jobs)


def build_files(plan: FilesPlan, output: str, mtu: int = ETHERNET_MTU) -> dict[str, Any]:
    """Return the profile (docs/prioritymeister.md) from fio's JSON output of `plan.job_file`. The
    bandwidth at each size follows from its mean latency. The network costs are those of NFS on
    links of this `mtu`.

    Raises:
        WorkloadError: fio's output is not JSON, or a measurement is missing, failed or empty.
    """
    jobs = jobs_of(output)
    found = {(m.kind, m.size): _bandwidth(part_of(jobs, m), m.size) for m in plan.measurements}
    rows = [
        {
            "requestSize": size,
            "readBandwidth": found["read", size],
            "writeBandwidth": found["write", size],
        }
        for size in FILE_SIZES
    ]
    return {"type": "storageSSD", "bandwidthTable": rows, "network": network_of(mtu)}


def _bandwidth(part: Mapping[str, Any], size: int) -> float:
    return size / (float(part["lat_ns"]["mean"]) / 1e9)
