"""Gain along an axis, its end, and claims about large stores."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import write_campaign, write_run

from analysis.core.load import load_campaign, table
from analysis.core.report import build
from analysis.papers.dlr.scale import AXES, HOT, MOVE, OSDS, curves, stretches, tables, words
from analysis.papers.dlr.scale_claims import CLAIMS
from analysis.papers.dlr.scale_variants import told, usual
from schemas.errors import UserError
from tests.drawing import texts_by_figure, texts_of

pytestmark = pytest.mark.timeout(600)  # drawing imports large libraries, slowly on a busy machine

ends_of = st.lists(
    st.floats(-1, 1).filter(lambda y: abs(y) > 1e-6) | st.just(math.nan), min_size=1, max_size=12
)


@settings(deadline=None)
@given(ends=ends_of, start=st.floats(0.01, 100), step=st.floats(1.05, 10))
def test_stretches_are_where_the_value_is_above(
    ends: list[float], start: float, step: float
) -> None:
    points = [(start * step**index, value) for index, value in enumerate(ends)]
    found = stretches(points)
    for x, value in points:
        inside = any(part.low <= x <= part.high for part in found)
        assert inside == (value > 0)
    for part in found:
        assert part.low <= part.high
        assert part.from_start == (part.low == points[0][0])
        assert part.to_end == (part.high == points[-1][0] and points[-1][1] > 0)
    for one, other in itertools.pairwise(found):
        assert one.high <= other.low


@settings(deadline=None)
@given(low=st.floats(0.01, 10), factor=st.floats(1.1, 100), above=st.floats(0.01, 1))
def test_a_crossing_is_straight_over_the_logarithm(low: float, factor: float, above: float) -> None:
    (part,) = stretches([(low, above), (low * factor, -above)])
    assert part.high == pytest.approx(low * math.sqrt(factor))
    (other,) = stretches([(low, -3 * above), (low * factor, above)])
    assert other.low == pytest.approx(low * factor**0.75)


def test_without_an_interval_nothing_is_shown() -> None:
    assert stretches([(1, math.nan), (2, math.nan)]) == ()
    (part,) = stretches([(1, math.nan), (2, 0.5), (4, math.nan)])
    assert (part.low, part.high) == (2, 2)


def gain_of(controller: str, osds: int, share: float, move: float | None) -> float:
    """Return the true gain: DLR's ends above 25 % hot nodes and below 30 s; dlr-pg's does not."""
    if controller == "default":
        return 0.0
    hot = 0.4 * (1 - share / 0.25)
    gain = hot if controller == "dlr" else 0.5
    if move is not None:
        gain = 0.3 * math.log10(move / 30) if controller == "dlr" else 0.2
    return gain + 0.02 * math.log10(osds / 100)


def sweep(artifacts: Path, name: str = "dlr-scale", noise: float = 0.005) -> Path:
    """Write a campaign over all axes with three blocks."""
    random = np.random.default_rng(5)
    cells: list[dict[str, Any]] = []
    for osds in (100, 1000, 10_000):
        cells.append({"osds": osds, "hot_share": 0.05, "scenario": "heterogeneity"})
    for share in (0.01, 0.05, 0.2, 0.5):
        cells.append({"osds": 100, "hot_share": share, "scenario": "heterogeneity"})
    for move in (5.0, 10.0, 60.0, 600.0):
        cell = {"osds": 100, "hot_share": 0.25, "scenario": "interference", "duration_s": 360}
        cells.append(cell | {"move_every_s": move})
    written = set()
    for block in range(3):
        shared = random.normal(1, 0.2)
        for cell in cells:
            for controller in ("default", "dlr", "dlr-pg", "reweight"):
                parameters = {"op": "rand", "controller": controller, "duration_s": 60, **cell}
                key = json.dumps([parameters, block], sort_keys=True)
                if key in written:
                    continue
                written.add(key)
                move = cell.get("move_every_s")
                inert = controller == "reweight"
                gain = 0.0 if inert else gain_of(controller, cell["osds"], cell["hot_share"], move)
                value = 10 * cell["osds"] * shared * (1 + gain) * random.normal(1, noise)
                write_run(
                    artifacts / name,
                    parameters,
                    block,
                    value,
                    ground="sim",
                    inert=inert,
                    with_samples=False,
                )
    (artifacts / name / "campaign.json").write_text(
        json.dumps({"campaign": {"paper": "dlr-scale", "ground": "sim"}})
    )
    return artifacts / name


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweep(tmp_path_factory.mktemp("artifacts"))


@pytest.fixture(scope="module")
def rows(swept: Path) -> pd.DataFrame:
    return table(load_campaign(swept).runs)


def test_every_controller_has_a_curve_along_every_axis(rows: pd.DataFrame) -> None:
    for axis in AXES:
        found = {curve.controller: curve for curve in curves(rows, axis)}
        assert set(found) == {"dlr", "dlr-pg", "reweight"}
        assert found["reweight"].points == ()
        assert {point.gain.n for point in found["dlr"].points} == {3}
    (dlr,) = [curve for curve in curves(rows, OSDS) if curve.controller == "dlr"]
    assert [point.x for point in dlr.points] == [100, 1000, 10_000]
    assert (dlr.hot_share, dlr.osds) == (0.05, None)


def test_where_dlr_stops_helping_is_found(rows: pd.DataFrame) -> None:
    hot = next(curve for curve in curves(rows, HOT) if curve.controller == "dlr")
    (part,) = hot.helps
    assert part.from_start and not part.to_end
    assert 0.2 < part.high < 0.3
    assert words(hot, hot.helps) == f"up to {100 * part.high:.2g} %"
    (harm,) = hot.harms
    assert harm.to_end and 0.2 < harm.low < 0.5
    move = next(curve for curve in curves(rows, MOVE) if curve.controller == "dlr")
    (part,) = move.helps
    assert part.to_end and 25 < part.low < 45
    assert words(move, move.helps).startswith("from ")
    swap = next(curve for curve in curves(rows, HOT) if curve.controller == "dlr-pg")
    assert words(swap, swap.helps) == "everywhere, 1 % to 50 %"
    assert words(swap, swap.harms) == "nowhere"
    assert words(swap, stretches([(0.1, math.nan), (0.2, 1), (0.4, math.nan)])) == "at 20 %"


@pytest.mark.slow
def test_a_single_cell_is_no_curve(swept: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(swept, tmp_path / swept.name)
    for block in range(3):
        cell = {"op": "rand", "scenario": "heterogeneity", "controller": "upmap"}
        cell |= {"osds": 100, "hot_share": 0.05, "duration_s": 60}
        write_run(folder, cell, block, 1000, ground="sim", with_samples=False)
    rows = table(load_campaign(folder).runs)
    for axis in AXES:
        found = curves(rows, axis)
        assert "upmap" not in {curve.controller for curve in found}


def test_durations_and_sizes_are_not_mixed(swept: Path, tmp_path: Path) -> None:
    """Points of longer runs exclude shorter runs at the same place of an axis."""
    folder = shutil.copytree(swept, tmp_path / swept.name)
    for block in range(3):
        for controller in ("default", "dlr"):
            cell = {"op": "rand", "scenario": "heterogeneity", "controller": controller}
            cell |= {"osds": 100, "hot_share": 0.05, "duration_s": 10}
            factor = 9.0 if controller == "dlr" else 1.0
            write_run(folder, cell, block, 10 * factor, ground="sim", with_samples=False)
    rows = table(load_campaign(folder).runs)
    for axis in (OSDS, HOT):
        for curve in curves(rows, axis):
            assert all(point.gain.value < 2 for point in curve.points)


def variant_rows(*variants: tuple[int, str, int]) -> pd.DataFrame:
    """Return this number of dlr-pg runs, by store size in OSDs and parameters."""
    rows = [
        {"controller": "dlr-pg", "osds": osds, "variant": variant, "run": number}
        for osds, variant, count in variants
        for number in range(count)
    ]
    return pd.DataFrame(rows)


def test_a_curve_is_one_way_to_run_a_controller() -> None:
    few, many = '{"max_swaps": 800}', '{"max_swaps": 8000}'
    grown = variant_rows((100, few, 3), (1000, many, 3))
    assert len(usual(grown)) == 6
    assert told(grown) == "max_swaps 8 an OSD"
    assert told(variant_rows((100, few, 3))) == "max_swaps 800"
    assert told(variant_rows((100, few, 1), (1000, few, 1))) == "max_swaps 800"
    assert told(variant_rows((100, few, 1), (500, many, 1))) == "max_swaps 800 to 8,000"
    assert told(variant_rows((100, "{}", 2), (1000, "{}", 2))) == "–"
    # Its defaults count if it ran with them, otherwise the most frequent parameters.
    assert set(usual(variant_rows((100, few, 9), (100, "{}", 2)))["variant"]) == {"{}"}
    assert set(usual(variant_rows((100, few, 2), (100, many, 3)))["variant"]) == {many}
    assert usual(grown.head(0)).empty


@pytest.mark.slow
def test_parameters_that_grow_are_in_curve_table_and_claims(tmp_path: Path) -> None:
    for block in range(3):
        for osds in (100, 1000):
            for controller, factor in (("default", 1.0), ("dlr", 1.1), ("dlr-pg", 1.3)):
                cell: dict[str, Any] = {"op": "rand", "scenario": "heterogeneity"}
                cell |= {"controller": controller, "osds": osds, "hot_share": 0.25}
                if controller == "dlr-pg":
                    cell["controller_parameters"] = {"max_swaps": 8 * osds}
                value = (50 + block) * osds * factor * (1 + 0.001 * block * factor)
                folder = tmp_path / "dlr-scale"
                write_run(folder, cell, block, value, ground="sim", with_samples=False)
    (tmp_path / "dlr-scale" / "campaign.json").write_text(
        json.dumps({"campaign": {"paper": "dlr-scale", "ground": "sim"}})
    )
    made = build(tmp_path, "dlr-scale")
    (stops,) = made.tables
    by_name = {row["controller"]: row for row in stops.as_json()}
    assert by_name["dlr-pg"]["parameters"] == "max_swaps 8 an OSD"
    assert by_name["dlr-pg"]["helps"] == "everywhere, 100 to 1,000"
    assert by_name["dlr"]["parameters"] == "–"
    claims = {claim.id: claim for claim in made.claims}
    for osds in (100, 1000):
        measured = claims[f"scale-dlr-pg-beats-dlr-{osds}"].measured
        assert measured == pytest.approx(1.3 / 1.1 - 1, rel=0.02)


def test_the_tables_have_a_row_a_controller(rows: pd.DataFrame) -> None:
    made = tables(rows)
    assert [found.id for found in made] == ["stops-osds", "stops-hot", "stops-move"]
    for found in made:
        assert {row["controller"] for row in found.as_json()} == {"dlr", "dlr-pg", "reweight"}
        by_name = {row["controller"]: row for row in found.as_json()}
        assert by_name["reweight"]["helps"].startswith("inert")
        assert by_name["dlr"]["n"] == "3"
        assert not any("-0 %" in text for row in found.as_json() for text in row.values())


@pytest.mark.slow
def test_the_report_has_figures_tables_and_claims_labelled_simulated(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = texts_by_figure(monkeypatch)
    made = build(swept.parent, "dlr-scale")
    assert {figure.entry.id for figure in made.figures if figure.path} == {"osds", "hot", "move"}
    for name in ("osds", "hot", "move"):
        assert (swept / "figures" / f"dlr-scale-fig{name}.png").stat().st_size > 10_000
        assert (swept / "figures" / f"dlr-scale-fig{name}.pdf").is_file()
    assert {"simulated", "1,000", "50 %", "600 s", "DLR per placement group"} <= texts_of(texts)
    page = made.path.read_text()
    assert "Where each stops helping: share of hot nodes" in page
    assert "<b>Simulated.</b>" in page
    assert "The paper's numbers" not in page
    assert (swept / "stops-hot.csv").read_text().startswith("op,OSDs,")
    claims = {claim.id: claim for claim in made.claims}
    assert {claim.paper_value for claim in made.claims} == {None}
    assert {claim.verdict for claim in made.claims} <= {
        *("direction", "inconclusive", "not reproduced", "not run")
    }
    assert claims["scale-dlr-hot-1-of-100"].verdict == "direction"
    assert claims["scale-dlr-hot-50-of-100"].verdict == "not reproduced"
    assert claims["scale-dlr-hot-1-of-1000"].verdict == "not run"
    assert claims["scale-dlr-move-600"].verdict == "direction"
    assert claims["scale-dlr-move-5"].verdict == "direction"  # the claim is about a decrease


@pytest.mark.slow
def test_claims_at_a_quarter_are_made_of_paired_blocks(tmp_path: Path) -> None:
    for block in range(3):
        for osds, gain in ((100, 1.2), (1000, 1.5)):
            for controller, factor in (("default", 1.0), ("dlr", gain), ("dlr-pg", gain + 0.2)):
                cell = {"op": "rand", "scenario": "heterogeneity", "controller": controller}
                cell |= {"osds": osds, "hot_share": 0.25, "duration_s": 60}
                value = (50 + 20 * block) * factor * (1 + 0.001 * block)
                folder = tmp_path / "dlr-scale"
                write_run(folder, cell, block, value, ground="sim", with_samples=False)
    (tmp_path / "dlr-scale" / "campaign.json").write_text(
        json.dumps({"campaign": {"paper": "dlr-scale", "ground": "sim"}})
    )
    claims = {claim.id: claim for claim in build(tmp_path, "dlr-scale").claims}
    assert claims["scale-dlr-1000"].measured == pytest.approx(0.5)
    assert claims["scale-dlr-gain-1000"].measured == pytest.approx(0.25)
    assert claims["scale-dlr-pg-beats-dlr-100"].measured == pytest.approx(1.4 / 1.2 - 1)
    assert claims["scale-dlr-10000"].verdict == "not run"


@pytest.mark.slow
def test_sizes_are_compared_over_one_duration(tmp_path: Path) -> None:
    """A longer run of one size, for another figure, is not compared with shorter ones."""
    for block in range(3):
        for osds, duration_s, gain in ((100, 40, 1.2), (1000, 40, 1.5), (100, 180, 3.0)):
            for controller, factor in (("default", 1.0), ("dlr", gain)):
                cell = {"op": "rand", "scenario": "heterogeneity", "controller": controller}
                cell |= {"osds": osds, "hot_share": 0.25, "duration_s": duration_s}
                value = (50 + 20 * block) * factor * (1 + 0.001 * block)
                folder = tmp_path / "dlr-scale"
                write_run(folder, cell, block, value, ground="sim", with_samples=False)
    (tmp_path / "dlr-scale" / "campaign.json").write_text(
        json.dumps({"campaign": {"paper": "dlr-scale", "ground": "sim"}})
    )
    claims = {claim.id: claim for claim in build(tmp_path, "dlr-scale").claims}
    assert claims["scale-dlr-100"].measured == pytest.approx(0.2)
    assert claims["scale-dlr-gain-1000"].measured == pytest.approx(0.25)


def test_ids_are_distinct_and_nothing_claims_a_size() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert all(not claim.size and claim.paper_value is None for claim in CLAIMS)


@pytest.mark.slow
def test_sizes_do_not_get_into_the_paper_s_figures(tmp_path: Path) -> None:
    write_campaign(tmp_path, "dlr-full", blocks=2)
    before = {claim.id: claim.measured for claim in build(tmp_path, "dlr", only="6a").claims}
    sweep(tmp_path)
    # This includes a campaign of the paper with cells of other sizes.
    cell = {"op": "seq", "scenario": "heterogeneity", "controller": "dlr", "osds": 1000}
    write_run(tmp_path / "dlr-full", cell, 0, 9e9)
    after = build(tmp_path, "dlr", only="6a")
    assert {claim.id: claim.measured for claim in after.claims} == before
    assert after.path == tmp_path / "dlr" / "report.html"
    with pytest.raises(UserError, match="no such figure; known: osds, hot, move"):
        build(tmp_path, "dlr-scale", only="6a")
