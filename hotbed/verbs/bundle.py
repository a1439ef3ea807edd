"""`hotbed bundle`: one archive with a campaign's runs, figures, claims and sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hotbed import completion
from hotbed.options import argument, named, names, option
from hotbed.output import Output
from hotbed.progress import progress

if TYPE_CHECKING:
    from analysis.bundle.publish import Bundled


def verb(
    campaign: Annotated[
        str,
        argument(
            "A campaign (dlr-quick), a comparison (compare-sim), or a paper: all its "
            "campaigns (dlr).",
            autocompletion=completion.reports,
        ),
    ],
    artifacts: Path = option("Where the runs are.", Path("artifacts")),
    out: Path | None = option("The archive; by default CAMPAIGN.hotbed.zip.", None),
    ground: str | None = option("The ground of the runs, where there are several.", None),
    about: Path | None = option("A YAML file with title, authors and more (docs/bundle.md).", None),
    hide: list[str] | None = option(
        "A host name that must not be in it; more of them by commas.", None
    ),
    with_logs: bool = named("--with-logs", "Pack raw logs too, with aliases for names.", False),
) -> Output:
    """Bundle runs, figures and claims for a reviewer; refused if it holds anything private."""
    from hotbed import bundling

    with progress(f"bundle {campaign}") as report:
        made = bundling.bundle(
            campaign,
            out,
            artifacts=artifacts,
            ground=ground,
            about=about,
            hide=names(hide or ()),
            with_logs=with_logs,
            progress=report,
        )
    facts = {
        "bundle": made.path,
        "sha256": made.sha256,
        "bytes": made.bytes,
        "files": len(made.manifest.files),
        "runs": made.derived.runs,
        "claims": len(made.derived.claims),
        "redacted": made.manifest.redacted,
        "left_out": made.manifest.left_out,
        "notes": list(made.manifest.notes),
    }
    return Output(facts, lambda: _sentences(made))


def _sentences(made: Bundled) -> str:
    lines = [
        f"{made.path.resolve()}: {made.bytes / 1e6:.1f} MB, {len(made.manifest.files)} files, "
        f"{made.derived.runs} runs, {len(made.derived.claims)} claims",
        f"SHA-256 {made.sha256}",
    ]
    for word, counts in (
        ("Replaced", made.manifest.redacted),
        ("Left out", made.manifest.left_out),
    ):
        if counts:
            listed = ", ".join(f"{count} {what}" for what, count in counts.items())
            lines.append(f"{word}: {listed}.")
    lines += [f"Note: {note}" for note in made.manifest.notes]
    lines.append(f"Check it: hotbed verify {made.path}")
    return "\n".join(lines)
