"""`hotbed status`: the existing testbeds and their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from hotbed import completion
from hotbed.options import argument
from hotbed.output import JsonFlag, emit
from schemas.errors import HotbedError

if TYPE_CHECKING:
    from testbed.sites.contract import Site, Status


def verb(
    name: Annotated[
        str | None, argument("Only this testbed.", autocompletion=completion.testbeds)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show every testbed, or one with its nodes."""
    from hotbed.views import lease_facts, microstores_of, status_view, testbeds_table
    from testbed.choose import choose, existing
    from testbed.sites.contract import State

    def facts(name: str, site: str, known: Status) -> dict[str, object]:
        stated = {"name": name, "site": site, "state": known.state, "detail": known.detail}
        return {**stated, "nodes": known.nodes, **lease_facts(known)}

    if name is None:
        found = {each: (site.kind, _asked(site, each)) for site, each in existing()}
        data = [facts(each, kind, known) for each, (kind, known) in found.items()]
        emit(data, as_json, lambda: testbeds_table(found))
        return
    site, chosen = choose(name)
    known, testbed = site.status(chosen), site.find(chosen)
    one = facts(chosen, site.kind, known) | {"testbed": testbed}
    swift = microstores_of(testbed) if known.state == State.READY else None
    if swift is not None:
        one["swift"] = swift
    emit(one, as_json, lambda: status_view(chosen, known, testbed, swift))


def _asked(site: Site, name: str) -> Status:
    """Return the testbed's state; a testbed that does not answer must not hide the others."""
    from testbed.sites.contract import State, Status

    try:
        return site.status(name)
    except HotbedError as error:
        return Status(State.FAILED, f"cannot be asked: {str(error).rstrip('.')}")
