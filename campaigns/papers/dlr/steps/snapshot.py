"""Snapshots for write cells: each starts from a frozen state, and reads never see its writes.

A write cell marks the testbed as written before it starts. The next cell restores the testbed, even
if the engine was killed. Objects that were prefilled after the latest snapshot are frozen with the
store once, before the first write cell.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from schemas.durable import write_file
from testbed.deploy.lifecycle import DEPLOYED, restore_snapshot, stopped_store
from testbed.sites.contract import Site, SnapshotSite, Testbed

FILLED = "filled"
MARKER = "contents.json"


@dataclass(frozen=True)
class Contents:
    """Contents of the store beyond its newest snapshot. `written` names the run that wrote."""

    written: str | None = None
    prefilled: bool = False


class Snapshots:
    """Snapshots of one testbed for cells."""

    def __init__(self, site: Site, testbed: Testbed) -> None:
        self._site = site
        self._testbed = testbed
        self._marker = testbed.directory / MARKER

    def contents(self) -> Contents:
        """Return the contents in the marker file."""
        try:
            return Contents(**json.loads(self._marker.read_text()))
        except (OSError, ValueError, TypeError):
            return Contents()

    def mark_written(self, run: str) -> None:
        """Mark the store as written, before a write cell starts."""
        self._mark(Contents(run, self.contents().prefilled))

    def mark_prefilled(self) -> None:
        """Mark the store as having additional objects to read."""
        self._mark(Contents(self.contents().written, True))

    def undo_writes(self) -> bool:
        """Undo the changes of an earlier write cell; return False if there are none or the site
        cannot."""
        return self.contents().written is not None and self._restore()

    def fresh_undoes(self) -> bool:
        """Return True if `fresh` will undo the writes, so that this is not done twice."""
        site = self._site
        return (
            self.contents().written is not None
            and isinstance(site, SnapshotSite)
            and self._newest(site) is not None
        )

    def fresh(self) -> bool:
        """Start the store from a frozen state; return False if the site cannot."""
        site = self._site
        if not isinstance(site, SnapshotSite):
            return False
        known = self.contents()
        if known.prefilled and known.written is None:
            with stopped_store(self._testbed):
                site.snapshot(self._testbed.name, self._new_label(site))
            self._mark(Contents())
            return True
        return self._restore()

    def _restore(self) -> bool:
        site = self._site
        if not isinstance(site, SnapshotSite):
            return False
        label = self._newest(site)
        if label is None:
            return False
        restore_snapshot(site, self._testbed.name, label)
        self._mark(Contents())
        return True

    def _newest(self, site: SnapshotSite) -> str | None:
        ours = [label for label in site.snapshots(self._testbed.name) if _is_ours(label)]
        return ours[-1] if ours else None

    def _new_label(self, site: SnapshotSite) -> str:
        taken = set(site.snapshots(self._testbed.name))
        number = 1
        while f"{FILLED}-{number}" in taken:
            number += 1
        return f"{FILLED}-{number}"

    def _mark(self, contents: Contents) -> None:
        write_file(Path(self._marker), json.dumps(asdict(contents)) + "\n")


def _is_ours(label: str) -> bool:
    return label == DEPLOYED or label.startswith((f"{DEPLOYED}-", f"{FILLED}-"))
