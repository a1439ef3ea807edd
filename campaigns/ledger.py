"""An append-only record of what the engine did: one JSON line an event.

The run folders are the truth about results; the ledger tells the story beside them (attempts
started, spoiled, failed, interrupted, adopted), also of attempts that left nothing else.
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
    """`ledger.jsonl` of one campaign. One writer at a time: the holder of the campaign's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: Event, **facts: Any) -> None:
        """Write one line and see it on the disk.

        Raises:
            OSError: it cannot be written; the file is as it was.
        """
        record = {"at": _now(), "event": event, **facts}
        line = json.dumps(record, sort_keys=True, allow_nan=False).encode() + b"\n"
        append_line(self.path, line)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """Every whole record, oldest first; torn lines are skipped."""
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
