"""`hotbed calibrate`: measure the quantities that the local site's stand-ins represent."""

from __future__ import annotations

from pathlib import Path

from hotbed.alone import alone
from hotbed.options import argument, option
from hotbed.output import Output, Verbs
from hotbed.progress import progress

group = Verbs(help="Compare a stand-in with the quantity it stands for.")


@group.command()
def signal(
    testbed: str | None = argument(
        "A deployed, idle testbed; optional if there is only one.", None
    ),
    node: str | None = option("Node to load; by default the first with an OSD.", None),
    out: Path = option("New folder for the table and the figure.", Path("artifacts/calibration")),
) -> Output:
    """Compare one node's io.pressure with the machine's %iowait at loads of 0 to 100 %."""
    from testbed.choose import choose_ready, select
    from testbed.client import agent_client
    from testbed.deploy.roles import spec_of
    from testbed.reach import shell_to
    from workloads.calibrate_signal import calibrate_node, check_new, table, write

    check_new(out)
    _, found = choose_ready(testbed)
    chosen = select(found, node)[0] if node else found.with_role("osd")[0]
    with alone(found), progress(f"calibrate {found.name}") as report:
        shell = shell_to(found, chosen)
        levels = calibrate_node(agent_client(found), found, spec_of(found), shell, report)
    files = write(levels, out)
    return Output(levels, lambda: table(levels) + "\n".join(str(file) for file in files))
