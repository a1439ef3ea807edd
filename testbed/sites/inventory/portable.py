"""What of this site's options may leave with results, and what its inventory tells of machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from testbed.sites.inventory.ansible_hosts import read_file

NAME_NOBODY = frozenset(("signal",))
"""Options that name no machine and no person."""


def names_told(options: Mapping[str, object], folder: Path) -> Iterator[str]:
    """Machines and users in the file that the options name, also those that cannot be used.

    Args:
        options: of the site.
        folder: of the spec.

    Raises:
        UserError: the file cannot be read.
    """
    place = options.get("inventory")
    if not isinstance(place, str):
        return
    machines = read_file(folder / Path(place).expanduser())
    yield from machines.unusable
    for host in machines.hosts:
        jump = host.proxy_jump
        yield from filter(None, (host.address, host.name, host.user))
        yield from filter(None, (jump.address, jump.user) if jump is not None else ())
