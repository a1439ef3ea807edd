"""Measured runs for a profile: the resources of a store, and a workload's rate."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from schemas.durable import read_json, write_file
from schemas.errors import UserError, not_allowed, unknown
from schemas.mistakes import checked
from testbed.simulated.cosperf.machines import CLASSES, ObjectClass, local
from testbed.stores.microstores import Resources

PLENTY = Resources(proxy_cores=1e6, storage_cores=1e6, network=1e14, ssds=10**6, hdds=0)
"""Amounts that are not a limit."""

RESOURCE = ("proxy_cores", "storage_cores", "network", "disks")
FILES = Path(__file__).parent
"""Files of points in this folder come with Hotbed or were kept."""
ELSEWHERE = "HOTBED_PROFILES"
"""Environment variable with a folder of further points, searched first; a bundle sets it."""


class MeasuredPoint(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """One run at a configuration. Omitted resources were not a limit.

    Attributes:
        workload: A to D.
        sizes: ``paper`` for objects of Table 1; ``local`` for large objects of 1 to 16 MB.
        object_bytes: size of all objects, if it is equal.
        reads_only: True if there are no writes or deletions.
        workers: COSBench's workers; None if they saturate the store.
        proxy_cores, storage_cores: total of all proxies and of all storage servers.
        network: bytes a second between clients and proxies.
        ssds, hdds: numbers of disks.
        requests_s, bytes_s: finished per second; at least one is given.
        latency_s: mean latency of a request.
        source: place of the measurement; points of one source with equal configurations are
            repetitions.
    """

    workload: Literal["A", "B", "C", "D"]
    sizes: Literal["paper", "local"] = "local"
    object_bytes: float | None = Field(default=None, gt=0)
    reads_only: bool = False
    workers: float | None = Field(default=None, gt=0)
    proxy_cores: float | None = Field(default=None, gt=0)
    storage_cores: float | None = Field(default=None, gt=0)
    network: float | None = Field(default=None, gt=0)
    ssds: int | None = Field(default=None, ge=0)
    hdds: int | None = Field(default=None, ge=0)
    requests_s: float | None = Field(default=None, gt=0)
    bytes_s: float | None = Field(default=None, gt=0)
    latency_s: float | None = Field(default=None, gt=0)
    source: str

    @model_validator(mode="after")
    def _says_something(self) -> MeasuredPoint:
        if self.requests_s is None and self.bytes_s is None:
            raise ValueError("a point needs requests_s or bytes_s")
        if "disks" in self.limited_by and not (self.ssds or self.hdds):
            raise ValueError("no disks at all: leave ssds and hdds out where they limit nothing")
        return self

    @property
    def objects(self) -> ObjectClass:
        """Class of the stored objects."""
        one = CLASSES[self.workload] if self.sizes == "paper" else local(self.workload)
        if self.object_bytes is not None:
            one = replace(one, low=self.object_bytes, high=self.object_bytes)
        return replace(one, read=1.0, write=0.0, delete=0.0) if self.reads_only else one

    @property
    def rate(self) -> float:
        """Requests a second."""
        if self.requests_s is not None:
            return self.requests_s
        assert self.bytes_s is not None
        return self.bytes_s / self.objects.payload

    @property
    def resources(self) -> Resources:
        """Resources of the store; `PLENTY` where a resource was not a limit."""
        disks = self.ssds is not None or self.hdds is not None
        return Resources(
            PLENTY.proxy_cores if self.proxy_cores is None else self.proxy_cores,
            PLENTY.storage_cores if self.storage_cores is None else self.storage_cores,
            PLENTY.network if self.network is None else self.network,
            (self.ssds or 0) if disks else PLENTY.ssds,
            (self.hdds or 0) if disks else 0,
        )

    @property
    def configuration(self) -> tuple[object, ...]:
        """Key of the configuration; runs with the same key are repetitions."""
        left = ("requests_s", "bytes_s", "latency_s", "source")
        return tuple(value for name, value in self if name not in left)

    @property
    def limited_by(self) -> tuple[str, ...]:
        """Names of the resources that were limited."""
        disks = self.ssds is not None or self.hdds is not None
        given = (
            self.proxy_cores is not None,
            self.storage_cores is not None,
            self.network is not None,
            disks,
        )
        return tuple(name for name, there in zip(RESOURCE, given, strict=True) if there)


class Points(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Measured runs of one kind of store, with `replicas` of every object."""

    name: str
    about: str
    replicas: int = Field(ge=1, le=10)
    runs: tuple[MeasuredPoint, ...] = Field(min_length=1)


def folders() -> tuple[Path, ...]:
    """Return the folders of named points, in search order."""
    elsewhere = os.environ.get(ELSEWHERE)
    return (Path(elsewhere), FILES) if elsewhere else (FILES,)


def references() -> tuple[str, ...]:
    """Return the names of all points: Hotbed's, kept points, and those in the folder that the
    variable `ELSEWHERE` names."""
    return tuple(sorted({path.stem for folder in folders() for path in folder.glob("*.json")}))


def place(name: str) -> Path:
    """Return the file of the points with this name. UserError: there is no such file."""
    if name not in references():
        add = "add one from your own runs with `hotbed mos profile RUNS --keep NAME`"
        raise unknown("profile", name, references(), do=add)
    files = (folder / f"{name}.json" for folder in folders())
    return next(file for file in files if file.is_file())


def reference(name: str) -> Points:
    """Return the points with this name. UserError: there are no points with this name."""
    return read_points(place(name))


def keep(points: Points, name: str) -> Path:
    """Store measured points under a name for cells' `profile`, and return their file. UserError:
    the name is invalid or taken, or the file cannot be written."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,39}", name):
        raise not_allowed(
            "--keep", name, "at most 40 of a-z, 0-9 and -, with a letter at the beginning"
        )
    # One point per line, so that a diff of the file is readable.
    head = {"name": name, "about": points.about, "replicas": points.replicas}
    runs = (json.dumps(point.model_dump(exclude_defaults=True)) for point in points.runs)
    begin = json.dumps(head, indent=1).removesuffix("\n}")
    text = f'{begin},\n "runs": [\n  ' + ",\n  ".join(runs) + "\n ]\n}\n"
    path = FILES / f"{name}.json"
    write_file(path, text, exclusive=True)
    return path


def read_points(path: Path) -> Points:
    """Read a file of measured points. UserError: the file, the place in it, and the error."""
    return checked(Points, read_json(path), path)


def halves(
    points: Sequence[MeasuredPoint], seed: int
) -> tuple[tuple[MeasuredPoint, ...], tuple[MeasuredPoint, ...]]:
    """Return disjoint halves: one for the simulator, one for the optimiser's cospurf.

    Repetitions of a configuration stay together. Both halves have points of every workload and
    every limited resource if there are two configurations of it. `seed` decides which half gets
    which.
    """
    kinds: dict[tuple[object, ...], dict[tuple[object, ...], list[MeasuredPoint]]] = {}
    for point in points:
        kind: tuple[object, ...] = (point.workload, point.limited_by)
        kinds.setdefault(kind, {}).setdefault(point.configuration, []).append(point)
    sides: tuple[list[MeasuredPoint], list[MeasuredPoint]] = ([], [])
    turn = seed % 2
    for name in sorted(kinds, key=repr):
        ordered = sorted(kinds[name].values(), key=lambda runs: _amount(runs[0]))
        for runs in ordered:
            sides[turn].extend(runs)
            turn = 1 - turn
    return tuple(sides[0]), tuple(sides[1])


def _amount(point: MeasuredPoint) -> float:
    """Return a sort key for configurations."""
    limits = (point.proxy_cores, point.storage_cores, point.network, point.ssds, point.hdds)
    return math.prod(float(limit) for limit in limits if limit) * (point.workers or 1.0)


def from_run_folders(folder: Path) -> Points:
    """Return the points of a campaign's finished runs: cells on real microstores of experiments
    that vary one store's resources (`schemas/cells/mos.py`). UserError: there is no such run."""
    runs = [
        point
        for record in sorted(folder.glob("**/run.json"))
        if (point := _point_of(record)) is not None
    ]
    if not runs:
        raise UserError(
            "no finished run of one workload on one store",
            where=folder,
            allowed=f"experiments {', '.join(PROFILED)} of a campaign with system: mos",
            do="run one, or give a JSON file of points",
        )
    about = f"{len(runs)} runs measured on real microstores"
    return Points(name=folder.name, about=about, replicas=REPLICAS, runs=tuple(runs))


PROFILED = ("sizes", "proxy", "storage", "network", "disks")
OWN_DISKS = ("network", "disks")
"""Experiments that specify their disks; in others, disks are fast and not a limit."""

REPLICAS = 2
"""Copies of each object in the testbeds' Swift."""
USUAL_LARGE_MB = 16


def _point_of(record: Path) -> MeasuredPoint | None:
    run = _json(record)
    parameters: Mapping[str, Any] = run.get("parameters", {})
    experiment = parameters.get("experiment")
    if run.get("status") != "done" or experiment not in PROFILED:
        return None
    letter = "A" if experiment == "sizes" else str(parameters.get("workload", "A"))
    extra: Mapping[str, Any] = _json(record.with_name("summary.json")).get("extra", {})
    rate, proxies = extra.get(f"{letter}_qps"), parameters.get("proxies", 1)
    servers = int(extra.get("storage_servers") or 1)
    if not rate:
        return None
    disks = experiment in OWN_DISKS
    return MeasuredPoint(
        workload=letter,  # type: ignore[arg-type]
        object_bytes=_object_bytes(letter, experiment, parameters),
        reads_only=experiment == "sizes",
        workers=parameters.get("workers"),
        proxy_cores=proxies * parameters["proxy_cores"],
        storage_cores=servers * parameters["storage_cores"],
        network=proxies * parameters["network_mbit"] * 125e3,
        ssds=servers * int(parameters.get("ssds", 0)) if disks else None,
        hdds=servers * int(parameters.get("hdds", 0)) if disks else None,
        requests_s=rate,
        latency_s=extra.get(f"{letter}_mean_s") or None,
        source=f"run {run.get('run_id')} of {run.get('campaign')}",
    )


def _object_bytes(letter: str, experiment: str, parameters: Mapping[str, Any]) -> float | None:
    """Return the size of all objects, or the mean if it is not the class's usual size."""
    if experiment == "sizes":
        return 1000.0 * float(parameters["object_kb"])
    largest = float(parameters.get("large_mb", USUAL_LARGE_MB))
    if local(letter).large and largest != USUAL_LARGE_MB:
        return 1e6 * (1 + largest) / 2
    return None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
