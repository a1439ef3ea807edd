"""`hotbed status`: the existing testbeds and their states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotbed import completion
from hotbed.options import argument
from hotbed.output import Output
from schemas.errors import HotbedError

if TYPE_CHECKING:
    from testbed.sites.contract import Site, Status


def verb(
    name: str | None = argument("Only this testbed.", None, autocompletion=completion.testbeds),
) -> Output:
    """Show every testbed, or one with its store's health, faults, loads and controllers."""
    from hotbed.views import lease_facts, status_view, testbeds_table
    from testbed.choose import choose, existing
    from testbed.overview import overview

    def facts(name: str, site: str, known: Status) -> dict[str, object]:
        stated = {"name": name, "site": site, "state": known.state, "detail": known.detail}
        lease = lease_facts(known.ends_at_s, len(known.nodes))
        return {**stated, "nodes": known.nodes, **lease}

    if name is None:
        found = {each: (site.kind, _asked(site, each)) for site, each in existing()}
        data = [facts(each, kind, known) for each, (kind, known) in found.items()]
        return Output(data, lambda: testbeds_table(found))
    site, chosen = choose(name)
    testbed = site.find(chosen, partly=True)
    if testbed is None:
        known = site.status(chosen)
        one = facts(chosen, site.kind, known) | {"testbed": None}
        return Output(one, lambda: testbeds_table({chosen: (site.kind, known)}))
    seen = overview(testbed, site)
    lease = lease_facts(seen["ends_at_s"], len(seen["nodes"]))
    facts_seen = seen | lease | {"testbed": testbed}
    return Output(facts_seen, lambda: status_view(seen, testbed), code=int(seen["state"] is None))


def _asked(site: Site, name: str) -> Status:
    """Return the testbed's state; a testbed that does not answer must not hide the others."""
    from testbed.sites.contract import State, Status

    try:
        return site.status(name)
    except HotbedError as error:
        return Status(State.FAILED, f"cannot be asked: {str(error).rstrip('.')}")
