"""Features only of runs on machines: requests without answers, and copies of a different size."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from synthetic_pm import as_in_the_paper, extra_of, run_of

from analysis.core import style
from analysis.core.claims import Evidence
from analysis.core.load import LoadedRun
from analysis.core.report import draw
from analysis.papers.prioritymeister.catalogue import LOCAL_FIGURES
from analysis.papers.prioritymeister.panels import bars, known_percent
from analysis.papers.prioritymeister.runs import bootstrap, cells, quotient, table
from schemas.cells.prioritymeister import PM
from schemas.run import Summary


def a_run(block: int = 0, ground: str = "local", **cell: object) -> LoadedRun:
    told = PM.of(**{"scenario": "disk", "policy": "none", "k": 3, **cell})
    return run_of(told, block, extra_of(told, block, as_in_the_paper), ground)


def starved(run: LoadedRun) -> LoadedRun:
    """Return a run with a third of C's requests answered and too few of A's for the p99."""
    extra = dict(run.summary.extra)
    extra |= {"C_requests": 3000.0, "C_unfinished": 2000.0, "C_within": 0.0, "A_requests": 900.0}
    extra = {key: v for key, v in extra.items() if key[:3] not in ("C_p", "A_p")}
    extra |= {"A_p50_s": 0.01, "A_p90_s": 0.02, "A_p95_s": 0.03}
    return replace(run, summary=Summary(whole=[], steady=[], pressure_mean={}, extra=extra))


def test_percentiles_among_requests_without_an_answer_are_infinite() -> None:
    rows = table([starved(a_run())]).set_index("workload")
    assert rows.loc["C", "p50_s"] == rows.loc["C", "p99_s"] == math.inf
    assert pd.isna(rows.loc["C", "p99.9_s"])  # three beyond it
    assert rows.loc["A", "p95_s"] == 0.03 and pd.isna(rows.loc["A", "p99_s"])
    only = table([starved(a_run())])
    assert known_percent(only[only["workload"] == "C"]) == 99


def test_a_bar_of_requests_without_an_answer_goes_up_to_the_top() -> None:
    rows = table([a_run(0), starved(a_run(1)), starved(a_run(2))])
    with style.figure(1, 1, width=4, height=3) as (_, axes):
        bars(axes[0], rows, [("none", rows), ("both", rows[rows["block"] == 0])], 99.0, ["B", "C"])
        words = [text.get_text() for text in axes[0].texts]
        assert "never answered, 2/3" in words
        # The legend shows the C bar that ends.
        assert sorted(axes[0].get_legend_handles_labels()[1]) == ["B", "C"]
        axes[0].set_ylim(1e-3, 1e9)  # like the limits of adjacent panels
        (endless,) = [bar for bar in axes[0].patches if bar.get_hatch() == "///"]
        assert endless.get_window_extent().y1 == pytest.approx(axes[0].bbox.y1)
        assert len(axes[0].patches) == 4


def test_no_bar_is_drawn_where_a_run_has_too_few_requests() -> None:
    rows = table([a_run(0), starved(a_run(1))])
    with style.figure(1, 1, width=4, height=3) as (_, axes):
        bars(axes[0], rows, [("none", rows)], 99.0, ["A", "B"])
        assert len(axes[0].patches) == 1


def test_the_median_of_runs_counts_those_without_an_end() -> None:
    most = bootstrap([0.1, math.inf, math.inf])
    some = bootstrap([0.1, math.nan, 0.2, math.inf])
    assert most is not None and most.value == math.inf and all(map(math.isnan, most.error))
    assert some is not None and some.value == 0.2 and some.n == 3
    ratio = quotient(pd.Series([math.inf, 0.2]), pd.Series([0.1, 0.1]))
    assert ratio is not None and ratio.value == pytest.approx(2) and ratio.n == 1


def test_on_machines_a_campaign_says_how_large_the_copys_requests_are() -> None:
    chosen = cells(table([a_run(copy_kib=64), a_run(copy_kib=1024)]), "disk", "none", k=3)
    assert set(chosen["workload"]) == {"A", "B", "C", "L"}
    assert set(chosen["copy_kib"]) == {64}
    assert cells(table([a_run(ground="sim", copy_kib=64)]), "disk", "none", k=3).empty
    alone = cells(table([a_run(copy_kib=1024)]), "disk", "none", k=3)
    assert set(alone["workload"]) == {"A", "B", "C", "L"}


@pytest.mark.parametrize(
    ("size", "words"), [(64, "64 KiB: of"), (256, "256 KiB: of"), (1024, "1 MiB:")]
)
def test_a_caption_on_machines_tells_the_size_that_was_run(
    size: int, words: str, tmp_path: Path
) -> None:
    runs = [a_run(copy_kib=size)]
    entry = next(one for one in LOCAL_FIGURES if one.id == "5-local")
    entry = replace(entry, draw=lambda _evidence, folder, name: folder / name)
    drawn = draw(entry, Evidence(table(runs), runs), tmp_path, "pm")
    assert drawn.path is not None
    assert f"Here the copy's requests are of {words}" in drawn.entry.caption
    assert "copy's requests" not in entry.caption
