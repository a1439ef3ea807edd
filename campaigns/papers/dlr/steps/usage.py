"""Conditions of the workload: other use of the machines, and the machines' settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from campaigns.papers.dlr.services import Load
from schemas.errors import HotbedError, RemoteError
from testbed.deploy.roles import SPEC_FILE
from testbed.reach import shell_to
from testbed.sites.contract import Node, SettingsSite, Site, Testbed, UsageSite

_STEAL = 7  # position in a cpu line of /proc/stat; user and nice include guest time
_COUNTED = 8


class Usage:
    """Measurement of other load in the block of `measured`: by the site if it can, otherwise from
    each node's /proc/stat. With several clients the busiest counts. `cores` are the cores that each
    node used, if the site reports them.

    The nodes' settings are read back at both ends, if the site can. `disks` are the experiment's
    disk settings (`SettingsSite.settings`)."""

    def __init__(
        self,
        site: Site,
        testbed: Testbed,
        *clients: Node,
        disks: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    ) -> None:
        self._site = site
        self._testbed = testbed
        self._clients = clients
        self._disks = disks or {}
        self.load = Load()
        self.cores: Mapping[str, float] = {}

    def require_settings(self) -> dict[str, Any]:
        """Read the nodes' settings back, by path in a run's calibration. If nodes differ, a path
        has a value by node.

        Raises:
            HotbedError: a setting differs from the spec.
        """
        if not isinstance(self._site, SettingsSite):
            return {}
        found = self._site.settings(self._testbed.name, self._disks)
        wrong = [setting for setting in found if setting.differs]
        if wrong:
            more = f" (and {len(wrong) - 1} settings more)" if wrong[1:] else ""
            raise HotbedError(
                f"{wrong[0].sentence()}{more}: `hotbed up {self._testbed.directory / SPEC_FILE}` "
                "sets it back."
            )
        read: dict[str, dict[str, Any]] = {}
        for one in found:
            read.setdefault(f"{one.where}.{one.name}", {})[one.node] = one.found
        return {
            path: by_node if len(set(by_node.values())) > 1 else next(iter(by_node.values()))
            for path, by_node in read.items()
        }

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the load while the workload runs in the block.

        Raises:
            HotbedError: a node's setting differs from the spec, before or after the block.
        """
        self.require_settings()
        with self._counted():
            yield
        self.load = replace(self.load, settings=self.require_settings())

    @contextmanager
    def _counted(self) -> Iterator[None]:
        site = self._site
        if isinstance(site, UsageSite):
            before = site.usage_counters(self._testbed.name)
            yield
            after = site.usage_counters(self._testbed.name)
            usage = site.usage_between(before, after)
            self.cores = usage.node_cores
            shares = [
                usage.node_cores[client.name] / client.cpus
                for client in self._clients
                if client.cpus and client.name in usage.node_cores
            ]
            self.load = Load(usage.outside_cores, usage.steal, max(shares, default=None))
            return
        started = self._stats()
        yield
        ended = self._stats()
        self.load = load_between(started, ended, *(client.name for client in self._clients))

    def _stats(self) -> dict[str, str]:
        """Return /proc/stat of every node, empty for a node without an answer."""
        nodes = self._testbed.nodes

        def read(node: Node) -> str:
            try:
                return shell_to(self._testbed, node).run(["cat", "/proc/stat"]).text
            except RemoteError:
                return ""

        with ThreadPoolExecutor(len(nodes)) as pool:
            texts = pool.map(read, nodes)
            return dict(zip((node.name for node in nodes), texts, strict=True))


def load_between(before: Mapping[str, str], after: Mapping[str, str], *clients: str) -> Load:
    """Return the load: the largest steal of any node, and the busiest client's CPU share."""
    steals: list[float] = []
    shares: list[float] = []
    for node, text in after.items():
        first, last = _ticks(before.get(node, "")), _ticks(text)
        if first is None or last is None:
            continue
        delta = [b - a for a, b in zip(first, last, strict=True)]
        total = sum(delta)
        if total <= 0:
            continue
        steals.append(max(0.0, delta[_STEAL] / total))
        if node in clients:
            shares.append(max(0.0, (total - delta[3] - delta[4] - delta[_STEAL]) / total))
    return Load(None, max(steals, default=None), max(shares, default=None))


def _ticks(text: str) -> list[int] | None:
    """Return the ticks of user nice system idle iowait irq softirq steal."""
    fields = text.split("\n", 1)[0].split()
    if len(fields) <= _COUNTED or fields[0] != "cpu":
        return None
    return [int(field) for field in fields[1 : _COUNTED + 1]]
