"""Placement of a microstore's proxies: containers on unequal machines, or whole machines.

A share of cores is only useful together with a share of the network on the same machine. So the
usable part of a microstore's holding depends on its place. `place` puts containers on machines as a
sensible scheduler does; the result is not an optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.simulated.cosperf.machines import Host
from testbed.stores.microstores import Resources

TINY = 1e-9


@dataclass(frozen=True)
class Placed:
    """Cores of proxies and network (bytes a second) of a microstore, by machine; `line` is the mean
    link rate of these machines, regardless of shares."""

    cores: Mapping[str, float]
    network: Mapping[str, float]
    line: float

    @property
    def machines(self) -> frozenset[str]:
        """Machines with proxies of the microstore."""
        return frozenset(self.cores)

    def usable_cores(self, bytes_per_core: float) -> float:
        """Return the cores with enough network: `bytes_per_core` bytes for each core second."""
        if bytes_per_core <= 0:
            return sum(self.cores.values())
        return sum(
            min(cores, self.network.get(name, 0.0) / bytes_per_core)
            for name, cores in self.cores.items()
        )


def whole(hosts: Sequence[Host]) -> Placed:
    """Return the placement on all of these machines."""
    return Placed(
        {host.name: host.holds.proxy_cores for host in hosts},
        {host.name: host.network for host in hosts},
        sum(host.network for host in hosts) / max(1, len(hosts)),
    )


def place(hosts: Sequence[Host], wanted: Mapping[str, Resources]) -> dict[str, Placed]:
    """Place containers for all microstores, together at most the machines' resources.

    The microstore with the most network per core chooses first, among the machines with the most
    network per core. Each container has its microstore's proportion of both. The rest is placed
    wherever there is space.
    """
    cores = {host.name: host.holds.proxy_cores for host in hosts}
    network = {host.name: host.network for host in hosts}
    order = sorted(hosts, key=lambda host: (-host.network / host.cores, host.name))
    names = [host.name for host in order]
    found = {}
    for store in sorted(wanted, key=lambda name: (-_thirst(wanted[name]), name)):
        mine, nets = _fill(wanted[store], names, cores, network)
        lines = [host.network for host in hosts if host.name in mine]
        found[store] = Placed(mine, nets, sum(lines) / max(1, len(lines)))
    return {store: found[store] for store in wanted}


def _thirst(resources: Resources) -> float:
    if resources.proxy_cores <= 0:
        return float("inf") if resources.network > 0 else 0.0
    return resources.network / resources.proxy_cores


def _fill(
    wanted: Resources, names: Sequence[str], cores: dict[str, float], network: dict[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Take one microstore's share from the rest on the machines; return cores and network."""
    mine: dict[str, float] = {}
    nets: dict[str, float] = {}
    left = 1.0
    for name in names:
        part = left
        if wanted.proxy_cores > 0:
            part = min(part, cores[name] / wanted.proxy_cores)
        if wanted.network > 0:
            part = min(part, network[name] / wanted.network)
        if part <= TINY:
            continue
        mine[name] = part * wanted.proxy_cores
        nets[name] = part * wanted.network
        cores[name] -= mine[name]
        network[name] -= nets[name]
        left -= part
        if left <= TINY:
            break
    _rest(left * wanted.proxy_cores, names, cores, mine)
    _rest(left * wanted.network, names, network, nets)
    return mine, nets


def _rest(
    wanted: float, names: Sequence[str], there: dict[str, float], mine: dict[str, float]
) -> None:
    # Start where the microstore already has something: this may complete a container.
    for name in sorted(names, key=lambda one: one not in mine):
        if wanted <= TINY:
            return
        part = min(wanted, there[name])
        if part > TINY:
            mine[name] = mine.get(name, 0.0) + part
            there[name] -= part
            wanted -= part
