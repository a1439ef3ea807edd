"""`hotbed reference`: results of figures that stay when their runs are gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hotbed import completion
from hotbed.options import argument, option
from hotbed.output import Output, Verbs, new_table
from hotbed.progress import progress
from schemas.shown import line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.reference import Added, CheckedFigure

group = Verbs(help="Keep the results of figures without their runs.")

FolderOption = Annotated[Path, option("Folder of the references.")]
FOLDER = Path("artifacts/reference")
SHOWN = 10  # differences of one figure that are printed


@group.command()
def add(
    campaign: Annotated[
        str,
        argument(
            "A campaign (ursa-quick), or a paper for all its campaigns on one ground.",
            autocompletion=completion.reports,
        ),
    ],
    ground: str | None = option("Ground of the runs, if there are several.", None),
    artifacts: Path = option("Folder of the runs.", Path("artifacts")),
    folder: FolderOption = FOLDER,
) -> Output:
    """Write claims, figures and the data behind them from the runs of a campaign."""
    from analysis.reference import add as write
    from testbed.closure import digest

    with progress(f"add {campaign}") as report:
        made = write(
            artifacts, campaign, folder, digest, command_of, ground=ground, progress=report
        )
    facts = {"folders": made.folders, "left_out": made.left_out, "total_bytes": made.total}
    return Output(facts, lambda: _added(made))


def command_of(campaign: Path) -> str:
    """Return the command that made the runs in a campaign's folder. Its name is the file's, with
    that of another spec and of another ground (`campaigns.engine.session`)."""
    from campaigns.bundled import jobs
    from campaigns.engine.campaign_file import campaign_names

    name = campaign.name
    files = [file for file in campaign_names() if f"{name}-".startswith(f"{file}-")]
    job = next(jobs(sorted(campaign.glob("*/attempt-*"))), {})
    file = max(files, key=len, default=name)
    more, ground = name.removeprefix(file), f"-{job.get('ground')}"
    options = {
        "spec": _ours(job.get("spec") or "") if more.removesuffix(ground) else "",
        "ground": ground[1:] if more.endswith(ground) else "",
        "model": _ours(job.get("model") or ""),
    }
    given = [f" --{option} {value}" for option, value in options.items() if value]
    return f"hotbed run {file}{''.join(given)}"


def _ours(path: str) -> str:
    """Return a path in any clone of Hotbed relative to the clone; of another file, its name."""
    from campaigns.engine.campaign_file import ROOT

    parts = Path(path).parts[1:]
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((end for end in ends if (ROOT / end).is_file()), Path(path).name)


def _added(made: Added) -> object:
    from analysis.reference import MOST_BYTES

    caption = f"all references: {made.total / 1e6:.2f} of {MOST_BYTES / 1e6:.0f} MB"
    rows = ((folder, f"{size / 1e3:.1f}") for folder, size in made.folders.items())
    out = [line(f"Figure {figure} is left out: {why}.") for figure, why in made.left_out.items()]
    return [*out, new_table(("written", "kB"), rows, numbers=1, caption=caption)]


@group.command()
def check(
    paper: str | None = argument("A paper, such as ursa; all by default.", None),
    folder: FolderOption = FOLDER,
) -> Output:
    """Compute figures and claims again from what is stored, and compare."""
    from analysis.reference import check as checked
    from testbed.closure import digest

    found = checked(folder, digest, paper)
    facts = [
        {
            "folder": one.folder,
            "runs": one.reference.runs,
            "stale": one.stale,
            "differences": one.differences,
        }
        for one in found
    ]
    differ = any(one.differences for one in found)
    return Output(facts, lambda: _checked(found), code=int(differ))


def _checked(found: Sequence[CheckedFigure]) -> object:
    table = new_table(("paper", "figure", "runs", "result", "code"))
    lines: list[object] = []
    for one in found:
        count = len(one.differences)
        result = f"{count} differences" if count else "the same"
        changed = f"stale: {', '.join(one.stale)} changed" if one.stale else "the same"
        reference = one.reference
        table.add_row(reference.paper, reference.figure, str(reference.runs), result, changed)
        for each in one.differences[:SHOWN]:
            place = f"{one.folder / each.file} {each.where}".strip()
            lines.append(line(f"{place}: stored {each.bundled}, computed {each.derived}"))
    return [*lines, table]
