"""Where machines come from. `open_site` is the only way in: nothing else names a kind of site."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from schemas.errors import UserError
from testbed.sites.contract import Site

__all__ = ["kinds", "open_site"]


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


def open_site(kind: str = "local", options: Mapping[str, object] | None = None) -> Site:
    """The site of this kind.

    Raises:
        UserError: there is no such kind, or an option is unknown to the site.
    """
    if kind not in _SITES:
        raise UserError(f"unknown kind of site {kind!r}; there are: {', '.join(kinds())}.")
    return _SITES[kind](options or {})
