"""What the lease must hold for a spec: reservations of machines, by type or by flavor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import FLAVOR, HOST, Flavor, Lease, Reservation, Wanted
from testbed.sites.chameleon.filters import same, text_of
from testbed.sites.chameleon.options import Options, root_bytes
from testbed.spec import GroupSpec, TestbedSpec


@dataclass(frozen=True)
class Ask:
    """One reservation of the lease, and the groups whose nodes it is for."""

    wanted: Wanted
    groups: tuple[str, ...]


def asks_of(
    spec: TestbedSpec, options: Options, flavors: Mapping[str, Flavor] | None = None
) -> list[Ask]:
    """What the lease must hold: groups of one kind of machine share a reservation.

    `flavors` are those of the groups, on a site of virtual machines.
    """
    amounts: dict[tuple[str, str], int] = {}
    groups: dict[tuple[str, str], list[str]] = {}
    for group in spec.groups:
        if flavors is None:
            key = (text_of(options.filter_of(group.name)), "")
        else:
            key = ("", flavors[group.name].id)
        amounts[key] = amounts.get(key, 0) + group.count
        groups.setdefault(key, []).append(group.name)
    kind = HOST if flavors is None else FLAVOR
    return [Ask(Wanted(kind, amount, *key), tuple(groups[key])) for key, amount in amounts.items()]


def choose_flavors(
    spec: TestbedSpec, options: Options, flavors: Sequence[Flavor]
) -> dict[str, Flavor]:
    """The flavor of each group: the named one, or the smallest that its nodes fit into.

    Raises:
        UserError: there is none, or the named one is too small.
    """
    plain = [each for each in flavors if not each.name.startswith("reservation:")]
    return {group.name: _flavor(group, options, plain) for group in spec.groups}


def _flavor(group: GroupSpec, options: Options, flavors: Sequence[Flavor]) -> Flavor:
    need = (math.ceil(group.cpus), group.memory, root_bytes(group))
    name = options.flavor_of(group.name)
    named = [each for each in flavors if name is None or each.name == name]
    sizes = {each.name: (each.cpus, each.memory_bytes, each.disk_bytes) for each in named}
    fitting = [e for e in named if all(a >= b for a, b in zip(sizes[e.name], need, strict=True))]
    if fitting:
        return min(fitting, key=lambda each: sizes[each.name])
    gib = 2**30
    needs = f"{need[0]} CPUs, {need[1] / gib:.3g} GiB of memory and {need[2] / gib:.3g} GiB of disk"
    if name is None:
        raise UserError(
            f"{options.site}: no flavor has {needs}, which group {group.name!r} needs: make its "
            "disk or memory smaller."
        )
    if not named:
        known = ", ".join(sorted(each.name for each in flavors)[:12])
        raise UserError(f"{options.site}: there is no flavor {name!r}; there are: {known}.")
    raise UserError(
        f"{options.site}: group {group.name!r} needs {needs}; flavor {name!r} is smaller "
        f"({named[0].cpus}, {named[0].memory_bytes / gib:.3g} and "
        f"{named[0].disk_bytes / gib:.3g}): name a larger one, or leave site.options.flavor out."
    )


def match_reservations(lease: Lease, asks: Sequence[Ask]) -> dict[str, Reservation]:
    """The reservation that serves each group; the smallest that fits, each for one ask only.

    Raises:
        UserError: the lease lacks one.
    """
    spare = sorted(lease.reservations, key=lambda each: each.wanted.amount)
    served: dict[str, Reservation] = {}
    for ask in sorted(asks, key=lambda each: each.wanted.amount):
        found = next((each for each in spare if _serves(each.wanted, ask.wanted)), None)
        if found is None:
            what = ask.wanted.properties or f"flavor {ask.wanted.flavor_id}"
            raise UserError(
                f"lease {lease.name!r} ({lease.id}) has no reservation of {ask.wanted.amount} "
                f"machines of {what}: change the spec, or lease.name."
            )
        spare.remove(found)
        served |= dict.fromkeys(ask.groups, found)
    return served


def _serves(there: Wanted, wanted: Wanted) -> bool:
    if there.kind != wanted.kind or there.amount < wanted.amount:
        return False
    if wanted.kind == FLAVOR:
        return there.flavor_id in ("", wanted.flavor_id)
    return same(there.properties, wanted.properties)
