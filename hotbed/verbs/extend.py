"""`hotbed extend`: more time on a leased testbed."""

from __future__ import annotations

from typing import Annotated

from hotbed import completion
from hotbed.options import argument
from hotbed.output import Output
from schemas.errors import UserError


def verb(
    name: Annotated[str, argument("The testbed's name.", autocompletion=completion.testbeds)],
    hours: Annotated[float, argument("Additional hours.")],
) -> Output:
    """Ask for more time on a leased testbed; the site says how much it allows, and when."""
    from hotbed.views import lease_facts
    from testbed.choose import choose
    from testbed.sites.contract import SiteError, State

    if not 0 < hours <= 24 * 31:
        raise UserError(f"{hours:g} hours are not allowed", allowed=f"above 0 to {24 * 31}")
    site, chosen = choose(name)
    now = site.status(chosen)
    before = now.ends_at_s
    if before is None and now.state is not State.READY:
        raise UserError(
            f"testbed {chosen!r} on site {site.kind} is {now.state} ({now.detail})",
            do="run `hotbed up SPEC` first; then its lease can be extended",
        )
    if before is None:
        raise UserError(
            f"testbed {chosen!r} on site {site.kind} has no lease: it stays until `hotbed down`"
        )
    known = site.extend(chosen, hours * 3600)
    more_s = (known.ends_at_s or before) - before
    if more_s <= 0:
        raise SiteError(
            f"the lease of testbed {chosen!r} is as it was: site {site.kind} granted nothing; "
            f"it {known.lease()}"
        )
    facts = {"name": chosen, "extended_s": more_s, **lease_facts(known.ends_at_s, len(known.nodes))}
    return Output(facts, lambda: f"testbed {chosen}: lease extended; it {known.lease()}")
