"""Where machines come from. `open_site` is the only way in: nothing else names a kind of site."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from schemas.errors import UserError
from testbed.sites.contract import Site

__all__ = ["code_of", "kinds", "names_told", "open_site", "options_that_name_nobody"]


def _local(options: Mapping[str, object]) -> Site:
    from testbed.sites.local import LocalSite

    return LocalSite(options)


def _inventory(options: Mapping[str, object]) -> Site:
    from testbed.sites.inventory import InventorySite

    return InventorySite(options)


def _chameleon(options: Mapping[str, object]) -> Site:
    from testbed.sites.chameleon import ChameleonSite

    return ChameleonSite(options)


_SITES: dict[str, Callable[[Mapping[str, object]], Site]] = {
    "chameleon": _chameleon,
    "inventory": _inventory,
    "local": _local,
}


def kinds() -> tuple[str, ...]:
    """Every kind of site there is."""
    return tuple(sorted(_SITES))


def code_of(kind: str) -> tuple[str, ...]:
    """Entry points (`testbed.closure`) of what a kind of site does while a cell runs."""
    programs = {"local": ("dataplane/cmd/queuedisk",)}
    return (f"testbed/sites/{kind}/__init__.py", *programs.get(kind, ()))


def open_site(kind: str = "local", options: Mapping[str, object] | None = None) -> Site:
    """The site of this kind.

    Raises:
        UserError: there is no such kind, or an option is unknown to the site.
    """
    if kind not in _SITES:
        raise UserError(f"unknown kind of site {kind!r}; there are: {', '.join(kinds())}.")
    return _SITES[kind](options or {})


def options_that_name_nobody(kind: str) -> frozenset[str]:
    """Options of a kind of site that may leave with results: they name no machine and no person. Of
    a kind that does not say so, none."""
    from testbed.sites.chameleon.options import NAME_NOBODY as CHAMELEON
    from testbed.sites.inventory import hosts as inventory

    told = {"chameleon": CHAMELEON, "inventory": inventory.NAME_NOBODY}
    return told.get(kind, frozenset())


def names_told(kind: str, options: Mapping[str, object], folder: Path) -> Iterator[str]:
    """Machines and users in files beside the spec (in `folder`) that a site's options name.

    Raises:
        UserError: such a file cannot be read.
    """
    from testbed.sites.inventory import hosts as inventory

    told = {"inventory": inventory.names_told}
    if kind in told:
        yield from told[kind](options, folder)
