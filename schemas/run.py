"""The run folder, `artifacts/<campaign>/<run-id>/attempt-N/`: the content of each file.

``run.json``         a `Run`
``samples.parquet``  tidy: t_s float64, node string, metric string, value float64
``latency.parquet``  t_s float64, op string, tenant string, node string, low_ns int64,
                     high_ns int64, count int64 (absent when the tool reports no distribution)
``summary.json``     a `Summary`
``journal.jsonl``    one line per decision (see controllers/journal.py); absent without a controller
``notebook.ipynb``   the executed notebook; ``logs/`` raw tool output

`t_s` counts from the start of the measured workload; earlier samples are negative.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, model_validator

from schemas.campaign import Kind
from schemas.migrate import current
from schemas.model import Model

SCHEMA_VERSION: Final = 3

RunStatus = Literal["done", "failed", "spoiled", "interrupted"]


class Provenance(Model):
    """Origin of a run. Unknown values are None."""

    commit: str | None
    dirty: bool | None
    hotbed_version: str
    versions: dict[str, str]  # tool or store -> version: ceph, fio, python, kernel, ...
    hosts: dict[str, dict[str, Any]]  # node -> facts (cpus, memory_bytes, kernel, distribution)
    site: str
    signal: str | None  # iowait | io_pressure | osd_pressure | op_r_latency
    calibration: dict[str, Any] = Field(default_factory=dict)  # the disk, link and share settings
    awake: bool | None = None  # whether a virtual machine's processors were kept awake
    faults: list[dict[str, Any]] = Field(default_factory=list)  # by hand (`testbed.faults.Fault`)


class Stopping(Model):
    """Rule that decided how many blocks a grid has (`schemas.precision`): the blocks of its first
    stage, and the number of declared looks at a share."""

    first_stage: int
    looks: int = 1


class Run(Model):
    """Attempt at a cell. A record of an older version is read as the current version."""

    schema_version: Literal[3] = SCHEMA_VERSION
    kind: Kind
    run_id: str
    campaign: str
    attempt: int
    block: int
    order: int  # place in the block's random order
    seed: int
    ground: Literal["sim", "local", "chameleon", "inventory", "other", "fake"]
    parameters: dict[str, Any]
    time_scale: float
    status: RunStatus
    reason: str | None = None  # why the run failed or was spoiled
    started_at: str  # ISO 8601, UTC
    ended_at: str
    phases_s: dict[str, float]  # clean, settle, workload, collect ...: seconds
    osd_count: int | None = None
    stopping: Stopping | None = None  # only of a grid that asks for precision
    provenance: Provenance

    @model_validator(mode="before")
    @classmethod
    def _current(cls, values: Any) -> Any:
        return current(values)


class OpSummary(Model):
    """Results of one operation, whole run or steady state. Seconds, bytes per second."""

    op: str
    seconds: float
    operations: int | None
    bytes: int | None
    throughput_mb_s: float | None  # 10^6 bytes per second
    iops: float | None
    latency_mean_s: float | None
    latency_sd_s: float | None = None
    latency_max_s: float | None = None
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    errors: int | None = None


class Summary(Model):
    """Results of a run. `steady` leaves out the first two control intervals."""

    whole: list[OpSummary]
    steady: list[OpSummary]
    pressure_mean: dict[str, float]  # node -> mean of the signal, percent
    controller: dict[str, float] = Field(default_factory=dict)  # actions, sense_s, decide_s, act_s
    inert: bool | None = None  # the controller changed nothing: supports no claim
    usage: dict[str, float] = Field(default_factory=dict)  # known part of a cell's Load
    extra: dict[str, float] = Field(default_factory=dict)
