"""`hotbed variation`: sources of the variation between a campaign's runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hotbed import completion
from hotbed.options import argument, option
from hotbed.output import Output, new_table

if TYPE_CHECKING:
    from analysis.variation import PairedVariation, RunGroup, Variation


def verb(
    campaign: Annotated[
        str,
        argument(
            "A campaign with runs that repeats its cells, such as dlr-variation.",
            autocompletion=completion.reports,
        ),
    ],
    metric: str = option(
        "Number of a run's operation, or a name in its summary's `extra` (A_qps, A_mean_s).",
        "throughput_mb_s",
    ),
    artifacts: Path = option("Folder of the runs.", Path("artifacts")),
) -> Output:
    """Separate hot sets, blocks and repeated runs as sources of a metric's variation.

    Writes artifacts/CAMPAIGN/variation-METRIC.json.
    """
    from analysis.variation import separate

    found = separate(artifacts, campaign, metric)
    return Output(found, lambda: _tables(found))


def _tables(found: Variation) -> list[object]:
    from analysis.variation import label

    parts: list[object] = []
    for group in found.groups:
        heads = ("source", "values", "sd of the log", "95 % interval", "share")
        table = new_table(
            (*heads, "sd of the log-ratio", "on the paired log-ratio"),
            title=f"{found.metric}, {label(group.parameters)}: {', '.join(group.controllers)}, "
            f"{group.runs} runs",
        )
        for one in group.sources:
            low, high = one.interval
            table.add_row(
                *(one.source, str(one.levels), f"{one.sd:.3f}", f"{low:.3f} to {high:.3f}"),
                *(f"{100 * one.share:.0f} %", f"{one.paired_sd:.3f}", one.meaning),
            )
        parts += [table, *_sentences(group), ""]
    parts += [f"Left out: {name}: {why}." for name, why in found.left_out.items()]
    return [*parts, f"Written: {found.path.resolve()}"]


def _sentences(group: RunGroup) -> list[str]:
    words = [f"Paired log-ratio of two controllers: {_needed(group.paired)}."]
    if group.floor is not None:
        share = "more" if group.dominated else "less"
        words.append(
            f"Floor, from controller x hot set alone ({share} than half of the variance): "
            f"{_needed(group.floor)}."
        )
    return words


def _needed(paired: PairedVariation) -> str:
    low, high = paired.interval
    blocks = " and ".join(
        f"n = {n} for ±{100 * float(half):g} %" for half, n in paired.blocks.items()
    )
    return f"standard deviation {paired.sd:.3f} [{low:.3f}, {high:.3f}], {blocks}"
