"""Objects to read, written once in a testbed's life, because every layout finds them."""

from __future__ import annotations

import json
from dataclasses import asdict

from campaigns.papers.dlr.steps.fill import unshaped
from campaigns.papers.mos.division import APART, Division, even
from campaigns.papers.mos.live import drives
from campaigns.papers.mos.live.swift import Swift
from campaigns.papers.mos.loads import Objects, objects_of
from schemas.cells.mos import MosCell
from schemas.durable import write_file

FILE = "mos-objects.json"
"""File in the testbed's folder with the list of stored objects."""


class Stocked:
    """Hotbed's objects in a testbed's store."""

    def __init__(self, swift: Swift) -> None:
        self._swift = swift
        self._path = swift.reached.testbed.directory / FILE

    def ensure(self, parameters: MosCell) -> list[Objects]:
        """Write a cell's missing objects, with disks and links unshaped, and return them.

        Raises:
            HotbedError: the store does not accept them.
        """
        stored = self._stored()
        wanted = [objects_of(parameters, letter) for letter in parameters.letters]
        missing = [one for one in wanted if asdict(one) not in stored]
        if not missing:
            return []
        swift, reached = self._swift, self._swift.reached
        pool = swift.pool()
        swift.divide(Division(APART, even(pool).shares, even(pool).disks))
        access = swift.access()
        with unshaped(reached.site, reached.testbed.name):
            for one in missing:
                client = reached.clients[one.tenant]
                drives.prepare(reached.agent, reached.shell_to, client, one, access[one.tenant][0])
                stored.append(asdict(one))
                write_file(self._path, json.dumps(stored) + "\n")
        return missing

    def forget(self, parameters: MosCell) -> None:
        """Forget a cell's objects, because they are gone; its next attempt writes them again."""
        gone = [asdict(objects_of(parameters, letter)) for letter in parameters.letters]
        kept = [one for one in self._stored() if one not in gone]
        write_file(self._path, json.dumps(kept) + "\n")

    def _stored(self) -> list[dict[str, object]]:
        try:
            found: list[dict[str, object]] = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return []
        return found
