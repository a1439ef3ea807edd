"""An append-only record of what the engine did: one JSON line an event.

The run folders are the truth about results; the ledger tells the story beside them (attempts
started, spoiled, failed, interrupted, adopted), also of attempts that left nothing else.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

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
        """Write one line and see it on the disk. OSError when the disk is full: the file then
        ends in a torn line, which readers skip and the next append closes."""
        record = {"at": _now(), "event": event, **facts}
        line = json.dumps(record, sort_keys=True, allow_nan=False).encode() + b"\n"
        with self.path.open("ab") as stream:
            if self._torn():
                line = b"\n" + line
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

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

    def _torn(self) -> bool:
        """Whether a crash left a last line without its end."""
        if not self.path.is_file() or self.path.stat().st_size == 0:
            return False
        with self.path.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) != b"\n"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
