"""What cosdrive keeps beside COSBench's files: full histograms and a series by the second."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.errors import UserError
from workloads.cosbench.csv_file import Row, table
from workloads.cosbench.results import Driver, Measured, Second

HISTOGRAMS = "histograms.json"
SERIES = "series.csv"
COLUMNS = (
    *("second", "stage", "op", "tenant", "ops", "bytes", "errors", "mean_s", "p95_s", "work"),
    "measured",
)


def read(folder: Path) -> tuple[Driver | None, tuple[Measured, ...], tuple[Second, ...]]:
    """Both files of a workload's folder; nothing of the archive of a real COSBench.

    Raises:
        UserError: one is damaged; where.
    """
    driver, measured = None, tuple[Measured, ...]()
    path = folder / HISTOGRAMS
    if path.exists():
        driver, measured = _histograms(path)
    path = folder / SERIES
    seconds = tuple(_second(row) for row in table(path, COLUMNS)) if path.exists() else ()
    return driver, measured, seconds


def _histograms(path: Path) -> tuple[Driver, tuple[Measured, ...]]:
    try:
        document = json.loads(path.read_text())
        driver = Driver(
            state=str(document["state"]),
            started_at=float(document["started_unix_s"]),
            stopped_at=float(document["stopped_unix_s"]),
            seed=int(document["seed"]),
            rate=_maybe(document.get("rate_s")),
            arrivals=document.get("arrivals"),
        )
        measured = tuple(
            _measured(stage, operation)
            for stage in document["stages"]
            for operation in stage["operations"]
        )
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}, line {error.lineno}, column {error.colno}: no JSON ({error.msg})."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error
    except KeyError as error:
        raise UserError(f"{path}: {error.args[0]!r} is missing.") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is not what cosdrive writes: {error}.") from error
    return driver, measured


def _measured(stage: Mapping[str, Any], operation: Mapping[str, Any]) -> Measured:
    return Measured(
        stage=str(stage["stage"]),
        work=str(operation["work"]),
        op=str(operation["operation"]),
        type=str(operation["type"]),
        started_at=float(stage["started_unix_s"]),
        begin_s=float(operation["window_begin_s"]),
        end_s=_maybe(operation["window_end_s"]),
        operations=int(operation["ops"]),
        bytes=int(operation["bytes"]),
        failed={str(kind): int(count) for kind, count in operation["errors"].items()},
        operations_s=float(operation["throughput_s"]),
        bytes_s=float(operation["bandwidth_bytes_s"]),
        mean_s=_maybe(operation["mean_s"]),
        max_s=_maybe(operation["max_s"]),
        buckets=tuple((int(low), int(high), int(n)) for low, high, n in operation["buckets"]),
    )


def _maybe(value: Any) -> float | None:
    return None if value is None else float(value)


def _second(row: Row) -> Second:
    def seconds(place: int) -> float | None:
        return row.number(place) if row.text(place) else None

    if row.text(10) not in ("true", "false"):
        row.wrong(10, f"{row.text(10)!r} is neither true nor false")
    return Second(
        t_s=float(row.count(0)),
        stage=row.text(1),
        work=row.text(9),
        op=row.text(2),
        tenant=row.text(3),
        operations=row.count(4),
        bytes=row.count(5),
        failed=row.count(6),
        mean_s=seconds(7),
        p95_s=seconds(8),
        measured=row.text(10) == "true",
    )
