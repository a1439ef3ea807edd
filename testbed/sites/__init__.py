"""Sites provide machines. `open_site` is the only entry: no other code names a kind of site."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from schemas import extensions
from schemas.errors import unknown
from testbed.sites.contract import Site

__all__ = ["code_of", "kinds", "names_in_files", "open_site", "options_that_name_nobody"]


def _local(options: Mapping[str, object]) -> Site:
    from testbed.sites.local import LocalSite

    return LocalSite(options)


def _inventory(options: Mapping[str, object]) -> Site:
    from testbed.sites.inventory import InventorySite

    return InventorySite(options)


def _chameleon(options: Mapping[str, object]) -> Site:
    from testbed.sites.chameleon import ChameleonSite

    return ChameleonSite()  # it reads the options of each spec


_SITES: dict[str, Callable[[Mapping[str, object]], Site]] = {
    "chameleon": _chameleon,
    "inventory": _inventory,
    "local": _local,
}


def kinds() -> tuple[str, ...]:
    """Return every kind of site, those of installed packages too."""
    return tuple(sorted((*_SITES, *extensions.installed("site", _SITES))))


def code_of(kind: str) -> tuple[str, ...]:
    """Return entry points (`testbed.closure`) of a kind of site's code that runs in a cell."""
    if kind not in _SITES:
        return extensions.code("site", kind)
    programs = {"local": ("dataplane/cmd/queuedisk",)}
    return (f"testbed/sites/{kind}/__init__.py", *programs.get(kind, ()))


def open_site(kind: str = "local", options: Mapping[str, object] | None = None) -> Site:
    """Return the site of this kind. UserError: there is no such kind, or an option is unknown to
    the site."""
    if kind in _SITES:
        return _SITES[kind](options or {})
    if kind not in (known := kinds()):
        raise unknown("kind of site", kind, known)
    made: Site = extensions.make("site", kind, options or {})
    return made


def options_that_name_nobody(kind: str) -> frozenset[str]:
    """Return the options of a kind of site that may leave with results: they name no machine and no
    person. Without such a declaration, return none."""
    from testbed.sites.chameleon.options import NAME_NOBODY as CHAMELEON
    from testbed.sites.inventory import hosts as inventory

    by_kind = {"chameleon": CHAMELEON, "inventory": inventory.NAME_NOBODY}
    return by_kind.get(kind, frozenset())


def names_in_files(kind: str, options: Mapping[str, object], folder: Path) -> Iterator[str]:
    """Yield machines and users in files next to the spec (in `folder`) that a site's options name.
    UserError: such a file cannot be read."""
    from testbed.sites.inventory import hosts as inventory

    by_kind = {"inventory": inventory.names_in_files}
    if kind in by_kind:
        yield from by_kind[kind](options, folder)
