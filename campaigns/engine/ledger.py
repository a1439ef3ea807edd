"""Append-only record of the engine's actions: one JSON line per event.

The run folders are the truth about results. The ledger records the attempts (started, spoiled,
failed, interrupted, adopted), including attempts that left nothing else.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from schemas.durable import append_line

Event = Literal[
    "campaign-started",
    "started",
    "done",
    "failed",
    "spoiled",
    "interrupted",
    "adopted",
    "campaign-ended",
]


class Ledger:
    """`ledger.jsonl` of one campaign. Its only writer is the holder of the campaign's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: Event, **facts: Any) -> None:
        """Write one line and sync it to the disk.

        Raises:
            OSError: the line cannot be written; the file is unchanged.
        """
        record = {"at": _now(), "event": event, **facts}
        line = json.dumps(record, sort_keys=True, allow_nan=False).encode() + b"\n"
        append_line(self.path, line)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Yield every complete record, oldest first; skip torn lines."""
        if not self.path.is_file():
            return
        for line in self.path.read_bytes().split(b"\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and "event" in record:
                yield record


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
