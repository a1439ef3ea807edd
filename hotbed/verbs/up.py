"""`hotbed up`: bring a testbed up, or resume an interrupted start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hotbed.alone import alone_on
from hotbed.exit_codes import resumable
from hotbed.options import argument, named, option
from hotbed.output import JsonFlag, Output
from hotbed.progress import progress
from hotbed.site_options import AcceptHostKeysOption, YesWipeOption
from schemas.errors import UserError


def verb(
    spec: Annotated[Path, argument("A spec file, such as testbed/specs/dlr.yaml.")],
    name: str | None = option("Name of the testbed; by default the spec's.", None),
    suite: str | None = option(
        "Debian suite of a local testbed's nodes; by default the spec's, or trixie.", None
    ),
    yes_wipe: YesWipeOption = None,
    accept_host_keys: AcceptHostKeysOption = False,
    dry_run: bool = named(
        "--dry-run", "Only print the resources that it takes, and the start of the lease.", False
    ),
    as_json: JsonFlag = False,
) -> Output:
    """Bring a testbed up until every node answers ssh; repeat it to resume or repair."""
    from hotbed.site_options import allow
    from hotbed.views import cost_line, nodes_table
    from testbed.choose import existing
    from testbed.deploy.roles import save_spec
    from testbed.doctor import require
    from testbed.faults import FaultMaker
    from testbed.sites import open_site
    from testbed.spec import load_spec, renamed, with_suite

    loaded = load_spec(spec)
    wanted = renamed(loaded, name) if name else loaded
    wanted = with_suite(wanted, suite) if suite else wanted
    site = open_site(wanted.site.kind, wanted.site.options)
    if dry_run:
        cost = site.plan(wanted)
        return Output(cost, lambda: cost_line(wanted.name, cost))
    for other, each in existing():
        if each == wanted.name and other.kind != site.kind:
            raise UserError(
                f"a testbed {each!r} is there already, on the site {other.kind}",
                do=(f"take it down (`hotbed down {each}`), or give this one another name (--name)"),
            )
    require(spec=wanted)
    allow(site, wanted, devices=yes_wipe, host_keys=accept_host_keys, ask=not as_json)
    held = alone_on(site.folder(wanted.name), wanted.name)
    with held, resumable(), progress(f"up {wanted.name}") as report:
        testbed = site.provision(wanted, report)
        FaultMaker.on(site, testbed).clear()  # what is left of faults by hand
        save_spec(testbed, wanted)
    return Output(testbed, lambda: nodes_table(testbed))
