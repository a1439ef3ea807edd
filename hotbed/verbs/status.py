"""`hotbed status`: the existing testbeds and their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hotbed.output import JsonFlag, emit

if TYPE_CHECKING:
    from testbed.sites.contract import Site, Status


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command()
    def status(
        name: Annotated[str | None, typer.Argument(help="Only this testbed.")] = None,
        as_json: JsonFlag = False,
    ) -> None:
        """Show every testbed, or one with its nodes."""
        from hotbed.views import lease_facts, microstores_of, status_view, testbeds_table
        from testbed.choose import choose, existing
        from testbed.sites.contract import State

        if name is None:
            found = {each: (site.kind, _asked(site, each)) for site, each in existing()}
            data = [
                {"name": each, "site": kind, "state": known.state, "detail": known.detail}
                | {"nodes": known.nodes, **lease_facts(known)}
                for each, (kind, known) in found.items()
            ]
            emit(data, as_json, lambda: testbeds_table(found))
            return
        site, chosen = choose(name)
        known, testbed = site.status(chosen), site.find(chosen)
        one: dict[str, object] = {
            "name": chosen,
            "site": site.kind,
            "state": known.state,
            "detail": known.detail,
        }
        one |= {"nodes": known.nodes, **lease_facts(known), "testbed": testbed}
        swift = microstores_of(testbed) if known.state == State.READY else None
        if swift is not None:
            one["swift"] = swift
        emit(one, as_json, lambda: status_view(chosen, known, testbed, swift))


def _asked(site: Site, name: str) -> Status:
    """Return the testbed's state; a testbed that does not answer must not hide the others."""
    from schemas.errors import HotbedError
    from testbed.sites.contract import State, Status

    try:
        return site.status(name)
    except HotbedError as error:
        return Status(State.FAILED, f"cannot be asked: {str(error).rstrip('.')}")
