"""`hotbed run`: run or resume a campaign on a deployed testbed, or on a modelled one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotbed import completion
from hotbed.claims import claims
from hotbed.exit_codes import code_of, this_command
from hotbed.options import (
    ControllersDirOption,
    DryRunOption,
    ExtendLeaseOption,
    ModelOption,
    OtherTestbedOption,
    SchedulerOption,
    WorkersOption,
    argument,
    option,
    workers_asked,
)
from hotbed.output import Output
from hotbed.views import dry_run_output

if TYPE_CHECKING:
    from campaigns.engine.display import CampaignResult


def verb(
    campaign: Annotated[
        str,
        argument(
            "A campaign of campaigns/files (such as dlr-quick, ursa-quick, "
            "twochoice-quick, pm-quick, mos-quick, mos-sim-quick) or a YAML file.",
            autocompletion=completion.campaigns,
        ),
    ],
    *,
    figure: str | None = option(
        "Only the cells that feed this figure, such as 6 or 8a.",
        None,
        autocompletion=completion.figures,
    ),
    dry_run: DryRunOption = False,
    testbed: OtherTestbedOption = None,
    artifacts: Path = option("Where results go.", Path("artifacts")),
    controllers_dir: ControllersDirOption = None,
    ground: str | None = option(
        "Ground, such as sim (simulated: no testbed, root or Ceph); by "
        "default the campaign's. Results are in artifacts/CAMPAIGN-GROUND.",
        None,
    ),
    spec: Path | None = option(
        "Another testbed's spec, in place of the campaign's. Results are in "
        "artifacts/CAMPAIGN-SPEC.",
        None,
    ),
    model: ModelOption = None,
    notebook: bool = typer.Option(
        True,
        "--notebook/--no-notebook",
        help="Execute the notebook for each cell. On the ground sim, --no-notebook "
        "saves seconds per cell.",
    ),
    workers: WorkersOption = None,
    scheduler: SchedulerOption = None,
    extend_lease: ExtendLeaseOption = None,
) -> Output:
    """Run a campaign; the same command resumes it.

    Exit 1 if a cell ended without a run. Exit 75 if the testbed's lease expired first: give the
    same command again on a new lease.
    """
    from campaigns.engine import session

    request = session.Request(
        campaign,
        figure,
        testbed,
        artifacts,
        controllers_dir,
        ground,
        model,
        extend_lease,
        spec,
        claims,
    )
    helpers = workers_asked(workers, scheduler)
    if dry_run:
        return dry_run_output(session.dry_run(request, workers=helpers, in_process=not notebook))
    result = session.run(request, in_process=not notebook, workers=helpers)
    following = next_of(result, artifacts)
    facts = {"ok": result.ok, "sentence": result.sentence, "result": result} | following
    words = "Next: {next}\nReport: {report}".format(**following)
    return Output(facts, lambda: words, code_of(result))


def next_of(result: CampaignResult, artifacts: Path) -> dict[str, str]:
    """Return the command that follows (``next``), and the path of the report that it writes: the
    same command if it resumes."""
    command = this_command()
    if result.ok:
        where = (
            "" if artifacts == Path("artifacts") else f" --artifacts {shlex.quote(str(artifacts))}"
        )
        command = f"hotbed report {result.campaign}{where}"
    return {"next": command, "report": str((artifacts / result.campaign / "report.html").resolve())}
