"""Parts that sites of other people's machines share: records, ssh, release and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.errors import UserError
from testbed import reach
from testbed.deploy.inventory import cluster_id
from testbed.deploy.playbook import end_ansible
from testbed.sites import keys
from testbed.sites.clock import Clock
from testbed.sites.contract import Gateway, Node, Progress, Testbed, silent
from testbed.sites.inventory.contact import Contact, all_or_error, ask, everywhere
from testbed.sites.records import Record, Records
from testbed.sites.usage import between, of_machines
from testbed.spec import TestbedSpec


class RecordedSite:
    """Site that keeps records and reaches its machines by ssh alone; a `UsageSite`, too. `records`,
    `contact`, `clock`: the outside world."""

    kind: str

    def __init__(
        self, records: Records | None, contact: Contact | None, clock: Clock | None
    ) -> None:
        self._records = records or Records(self.kind)
        self._contact = contact or Contact()
        self._clock = clock or Clock()

    def folder(self, name: str) -> Path:
        return self._records.folder(name)

    def names(self) -> Sequence[str]:
        return list(self._records.names())

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        raise NotImplementedError

    def release(self, name: str, progress: Progress = silent) -> None:
        """See `Site.release`, and `_let_go`."""
        if name in self._records.names():
            with self._records.open(name) as record:
                self._let_go(record, progress)
                end_ansible(record.folder)
                reach.hang_up(name, record.folder, record.folder / "known_hosts")
                self._records.remove(name)
        progress("removed", 1.0)

    def usage_counters(self, name: str) -> Mapping[str, float]:
        """See `UsageSite.usage_counters`. SiteError: a machine does not answer."""
        testbed = self._ready(name)
        fsid = cluster_id(testbed)
        nodes = [node.name for node in testbed.nodes]
        answers = everywhere(
            nodes,
            lambda node: ask(
                self._contact.shell(reach.target_of(testbed, testbed.node(node))),
                "usage",
                fsid=fsid,
            ),
        )
        found = all_or_error(answers, "the load cannot be read:")
        return of_machines(found, self._clock.monotonic())

    usage_between = staticmethod(between)

    def _let_go(self, record: Record, progress: Progress) -> None:
        """Remove everything that was made for a testbed."""
        raise NotImplementedError

    def _ready(self, name: str) -> Testbed:
        found = self.find(name)
        if found is None:
            raise UserError(f"there is no testbed {name!r} that is ready", do="see `hotbed status`")
        return found


def testbed_in(
    folder: Path,
    kind: str,
    spec: TestbedSpec,
    nodes: tuple[Node, ...],
    gateways: tuple[Gateway, ...] = (),
) -> Testbed:
    """Return the testbed of a record's folder."""
    return Testbed(
        name=folder.name,
        site=kind,
        nodes=nodes,
        ssh_key=folder / keys.LOGIN,
        known_hosts=folder / "known_hosts",
        directory=folder,
        spec_hash=spec.digest(),
        gateways=gateways,
    )
