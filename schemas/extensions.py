"""Extensions: controllers, sites, stores and workloads in other people's installed packages.

A package names them as entry points (docs/extensions.md). Nothing of it is imported before a
command uses one of them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from schemas.errors import HotbedError, UserError, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["controller", "site", "store", "workload"]


def installed(kind: Kind, own: Collection[str] = ()) -> dict[str, EntryPoint]:
    """Return the entry points of the group ``hotbed.<kind>s`` by name. UserError: two have the same
    name, or one has a name of Hotbed's `own`."""
    from importlib.metadata import entry_points  # here, because it takes long to import

    found: dict[str, EntryPoint] = {}
    for one in entry_points(group=f"hotbed.{kind}s"):
        if one.name in own or one.name in found:
            other = found[one.name].dist if one.name in found else None
            raise UserError(
                f"the {kind} has the name of one of {_package(other)}",
                where=f"{one.name} of {_package(one.dist)}",
                do="uninstall one of the packages" if other else "uninstall the package",
            )
        found[one.name] = one
    return found


def make(kind: Kind, name: str, argument: object) -> Any:
    """Return what the function returns that an entry point names. UserError: no package has it, it
    does not import, or it fails."""
    known = installed(kind)
    if name not in known:
        raise unknown(kind, name, known, do="install the package that has it")
    try:
        return known[name].load()(argument)
    except HotbedError:
        raise
    except Exception as error:
        raise _broken(known[name], f"{type(error).__name__}: {error}") from error


def place(entry: EntryPoint, *, whole: bool = False) -> Path:
    """Return the folder or file of an entry point's module, or of its `whole` package, without
    importing them. UserError: it is missing."""
    from importlib.util import find_spec

    top, *inner = entry.module.split(".")
    found = find_spec(top)
    if found is None:
        raise _broken(entry, f"there is no package {top}")
    folders = found.submodule_search_locations or [str(found.origin)]
    return Path(folders[0], *(() if whole else inner))


def code(kind: Kind, name: str) -> tuple[str, ...]:
    """Return the entry of `testbed.closure` for the package with an extension; none if no package
    has it."""
    entry = installed(kind).get(name)
    return () if entry is None else (str(place(entry, whole=True)),)


def _broken(entry: EntryPoint, what: str) -> UserError:
    where = f"{entry.group} {entry.name} of {_package(entry.dist)}"
    return UserError(f"does not work: {what}", where=where, do="repair or uninstall the package")


def _package(dist: Any) -> str:
    return "Hotbed" if dist is None else f"the package {dist.name}"
