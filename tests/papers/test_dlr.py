"""DLR's claims, and gains along axes beyond the paper, on runs with known effects (Noel and Lama,
2017). Tests name the section or figure of the paper that they hold.
"""

from __future__ import annotations

import itertools
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.core.claims import Evidence, evaluate
from analysis.core.load import load_campaign, table
from analysis.core.report import build
from analysis.papers.dlr.claims import CLAIMS
from analysis.papers.dlr.runs import STANDARD, select, tabulate
from analysis.papers.dlr.scale import (
    AXES,
    HOT,
    MOVE,
    OSDS,
    curves,
    parameters_text,
    stretches,
    usual,
    words,
)
from analysis.papers.dlr.statements import STATEMENTS
from schemas.claim import ClaimResult
from tests.analysis.synthetic import write_campaign, write_run
from tests.drawing import texts_by_figure, texts_of

pytestmark = pytest.mark.timeout(600)  # drawing imports large libraries, slowly on a busy machine

Cell = dict[str, Any]
write_quick = partial(write_run, with_samples=False)


class JudgedCampaign(dict[str, ClaimResult]):
    """Results of the claims on one or more campaigns by id, each computed when it is read."""

    def __init__(self, *campaigns: Path) -> None:
        super().__init__()
        runs = [run for campaign in campaigns for run in load_campaign(campaign).runs]
        self._evidence = Evidence(tabulate(runs), runs)

    def __missing__(self, name: str) -> ClaimResult:
        (claim,) = (claim for claim in (*CLAIMS, *STATEMENTS) if claim.id == name)
        self[name] = evaluate(claim, self._evidence)
        return self[name]


def test_figures_1_to_11_are_computed_from_paired_blocks(tmp_path: Path) -> None:
    results = JudgedCampaign(write_campaign(tmp_path, with_samples=False))
    seq = results["dlr-heterogeneity-seq-throughput"]
    assert seq.measured == pytest.approx(0.25, abs=0.04)
    assert seq.ci95 is not None
    assert seq.ci95[0] > 0
    assert seq.n == 3
    latency = results["dlr-heterogeneity-seq-latency"]
    assert latency.measured == pytest.approx(1 - 1 / 1.25, abs=0.03)
    assert latency.depends_on == ["dlr-heterogeneity-seq-throughput"]
    expected = {
        "heterogeneity-throughput": (0.4, 0.03),
        "heterogeneity-latency": (1 / 0.6, 0.1),
        "threshold-0.2-best": (0.1, 0.04),
        "every-object-size": (0.25, 0.04),
        "overhead": (0.071 / (20 / 6), 1e-9),
    }
    for name, (value, near) in expected.items():
        assert results[name].measured == pytest.approx(value, abs=near), name
    assert results["write-small-gain"].effect == "inconclusive"
    assert results["mean-pressure-hurts"].effect == "confirmed"


def test_the_96_percent_of_section_5_are_the_quotient_of_latencies(tmp_path: Path) -> None:
    for block in range(3):
        for controller, throughput in (("dlr", 200.0), ("reweight", 100.0 + block)):
            cell = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
            write_quick(tmp_path / "dlr-quick", cell, block, throughput)
    measured = JudgedCampaign(tmp_path / "dlr-quick")["dlr-reweight-latency"].measured
    assert measured == pytest.approx(0.98, abs=0.01)


def test_inert_cells_support_no_claim(tmp_path: Path) -> None:
    for block in range(3):
        for controller in ("dlr", "reweight"):
            cell = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
            inert = controller == "reweight"
            write_quick(tmp_path / "dlr-quick", cell, block, 150.0 + block, inert=inert)
    result = JudgedCampaign(tmp_path / "dlr-quick")["dlr-reweight-throughput"]
    assert result.effect == "not run"
    assert "all 3 cells of the baseline were inert" in str(result.note)


def test_inert_runs_are_in_no_comparison_of_gains(tmp_path: Path) -> None:
    for block, op, scenario in itertools.product(
        range(3), ("seq", "rand"), ("heterogeneity", "interference")
    ):
        for controller, speed in (("default", 100.0), ("dlr", 120.0 + block), ("dlr-pg", 130.0)):
            cell = {"op": op, "scenario": scenario, "controller": controller}
            inert = scenario == "interference" and controller != "default"
            write_quick(tmp_path / "dlr-full", cell, block, speed, inert=inert)
    results = JudgedCampaign(tmp_path / "dlr-full")
    for name in ("dlr-gains-less-interference-seq", "dlr-pg-beats-dlr"):
        assert results[name].effect == "not run", name


def shape_of(positioning_s: float, count: int) -> dict[str, Any]:
    disk = {"positioning": positioning_s, "bandwidth": 100e6}
    return {"count": count, "groups": {"admin": {"disk": None}, "osd": {"disk": disk}}}


def write_shapes(folder: Path, gains: dict[tuple[float, int], float], ground: str) -> Path:
    """Write two blocks of dlr-shapes on each shape, given DLR's gain by positioning and OSDs."""
    campaign = folder / "dlr-shapes-x"
    for number, ((positioning_s, count), gain) in enumerate(gains.items()):
        for block in range(2):
            for controller, factor in (("default", 1.0), ("dlr", 1 + gain + 0.02 * block)):
                cell = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
                # Every shape is a campaign of its own; here, blocks tell them apart.
                shape = shape_of(positioning_s, count)
                write_quick(
                    campaign,
                    cell,
                    10 * number + block,
                    100.0 * factor,
                    ground=ground,
                    calibration=shape,
                )
    return campaign


SIX = dict.fromkeys(itertools.product((0.0176, 0.0117, 0.0068), (6, 8)), 0.44)


@pytest.mark.parametrize(
    ("gains", "ground", "size"),
    [
        (SIX, "local", "within tolerance"),
        (SIX, "sim", "not comparable"),
        # Two disks, one number of OSDs, and a shape without the effect.
        ({shape: gain for shape, gain in SIX.items() if shape[0] > 0.01}, "local", None),
        ({shape: gain for shape, gain in SIX.items() if shape[1] == 8}, "local", None),
        (SIX | {(0.0176, 8): -0.05}, "local", "not comparable"),
    ],
)
def test_a_size_counts_on_local_where_it_holds_on_three_shapes_and_two_counts(
    tmp_path: Path, gains: dict[tuple[float, int], float], ground: str, size: str | None
) -> None:
    result = JudgedCampaign(write_shapes(tmp_path, gains, ground))[
        "dlr-heterogeneity-seq-throughput"
    ]
    if size is None:
        assert result.effect == "not run"
        return
    assert (result.size, result.n) == (size, 12)
    assert result.measured is not None and result.measured > 0


def test_an_ssd_is_no_shape(tmp_path: Path) -> None:
    pooled, apart = (
        JudgedCampaign(write_shapes(tmp_path / name, gains, "local"))[
            "dlr-heterogeneity-seq-throughput"
        ].measured
        for name, gains in (("a", SIX), ("b", SIX | {(0.00005, 8): -0.1}))
    )
    assert pooled == apart


def test_reweight_is_compared_on_filestore_where_it_ran(tmp_path: Path) -> None:
    """There it sees fio's files, as in the paper (section V-B); a store is never pooled."""
    speeds = {"default": 100.0, "dlr": 120.0, "reweight": 90.0}
    stores = {None: speeds, "filestore": speeds | {"reweight": 60.0}}
    for store, speed in stores.items():
        campaign = tmp_path / f"dlr-{store}"
        for block, (controller, value) in itertools.product(range(3), speed.items()):
            for scenario in ("heterogeneity", "interference"):
                cell = {"op": "seq", "scenario": scenario, "controller": controller}
                found = {} if store is None else {"objectstore": store}
                value_of = value + 0.1 * block * (controller == "dlr")
                write_quick(campaign, cell, block, value_of, calibration=found)
    results = JudgedCampaign(*(tmp_path / f"dlr-{store}" for store in stores))
    for name, value in {
        "dlr-beats-reweight-heterogeneity-seq": 1.0,
        "dlr-reweight-throughput": 1.0,
        "dlr-heterogeneity-seq-throughput": 0.2,
    }.items():
        assert results[name].measured == pytest.approx(value, abs=0.01), name


@pytest.mark.parametrize(("reweight", "worse"), [(70.0, "confirmed"), (95.0, "contradicted")])
def test_the_statements_of_section_5_d_are_claims(
    tmp_path: Path, reweight: float, worse: str
) -> None:
    """Reweight is much worse than default Ceph; DLR gains less than under heterogeneity."""
    speeds = {
        "heterogeneity": {"default": 80.0, "dlr": 120.0},
        "interference": {"default": 100.0, "dlr": 110.0, "reweight": reweight},
    }
    for block, scenario in itertools.product(range(4), speeds):
        for controller, speed in speeds[scenario].items():
            cell = {"op": "seq", "scenario": scenario, "controller": controller}
            varied = speed + 0.2 * block * (controller != "reweight")
            write_quick(tmp_path / "dlr-full", cell, block, varied)
    results = JudgedCampaign(tmp_path / "dlr-full")
    lost = results["reweight-worse-seq-throughput"].measured
    assert lost == pytest.approx(reweight / 100 - 1, abs=0.02)
    assert results["dlr-gains-less-interference-seq"].measured == pytest.approx(1.1 / 1.5, abs=0.02)
    assert results["interference-hurts-less-seq"].measured == pytest.approx(1.25, abs=0.02)
    for name, effect in {
        **dict.fromkeys(("reweight-worse-seq-throughput", "reweight-worse-seq-latency"), worse),
        "dlr-gains-less-interference-seq": "confirmed",
        "interference-hurts-less-seq": "confirmed",
    }.items():
        assert results[name].effect == effect, name
        assert results[name].stated
        assert name.startswith("reweight") or results[name].baseline == "heterogeneity"


def affinities(scenario: str, good: bool, block: int) -> pd.DataFrame:
    """Return samples of a run in which OSD 0 is disturbed, under interference until 12 s. If `good`
    its affinity falls twice and rises afterwards, and it is primary of few PGs."""
    rows: list[tuple[float, str, str, float]] = []
    for t_s, osd in itertools.product(range(-7, 30), range(2)):
        hot = osd == 0 and (scenario == "heterogeneity" or t_s < 12)
        falls = (osd == 0) == (good or scenario == "interference")
        affinity = 0.8 if falls and t_s > -4 else 1.0
        if falls and good and t_s > 0:
            affinity = 0.1 if scenario == "heterogeneity" or t_s < 14 else 1.0
        primaries = (20.0 if good else 90.0) + block if affinity < 1 else 64.0
        values = {"primary_affinity": affinity, "primaries": primaries}
        rows += [(float(t_s), f"osd.{osd}", metric, value) for metric, value in values.items()]
        rows.append((float(t_s), f"osd{osd}", "hot", float(hot)))
    return pd.DataFrame(rows, columns=["t_s", "node", "metric", "value"])


def write_statement(campaign: Path, name: str, good: bool, block: int) -> None:
    """Write a block's runs that support a claim, or contradict it if not `good`."""
    scenario = "interference" if name in ("affinity-steps-down", "affinity-rises-after") else ""
    scenario = scenario or ("interference" if "interference" in name else "heterogeneity")
    cell: Cell = {"op": "seq", "scenario": scenario, "controller": "dlr"}
    speed = 100.0 + block
    if name.startswith("affinity"):
        folder = write_quick(campaign, cell, block, speed)
        affinities(scenario, good, block).to_parquet(folder / "samples.parquet")
    elif name.startswith(("gain-in-time", "dlr-up-to")):
        factor = 1.5 if good else 0.6
        for op in ("seq", "rand"):
            write_run(campaign, cell | {"op": op, "controller": "default"}, block, speed)
            write_run(campaign, cell | {"op": op}, block, speed * factor + 0.1 * block)
    elif name.startswith("iowait-quick"):
        for size, sense_s in ((2**18, 0.02), (2**24, 0.021 if good else 0.08)):
            journal = {"sense_s": sense_s * (1 + 0.01 * block * (size > 2**20))}
            sized = cell | {"object_size": size}
            write_quick(campaign, sized, block, speed, controller=journal)
    elif name.startswith("iowait"):
        loss = 25.0 if good else -5.0
        for step, mix in enumerate("ABCDE"):
            mixed = cell | {"scenario": "mix", "mix": mix, "controller": "default"}
            pressures = {"osd0": 5.0 + 20 * step}
            write_quick(campaign, mixed, block, 110 + block - loss * step, pressures=pressures)
    elif name.startswith("threshold"):
        for theta, value in ((0.1, 1.0), (0.2, 1.2 if good else 0.8)):
            swept = cell | {"op": name.split("-")[-1], "controller_parameters": {"theta_i": theta}}
            write_quick(campaign, swept, block, speed * value + 0.1 * block)
    else:
        journal = {"bytes_moved": 1e6 if good else 0.0}
        write_quick(campaign, cell | {"controller": "reweight"}, block, speed, controller=journal)


@pytest.mark.parametrize("effect", ["confirmed", "contradicted"])
@pytest.mark.parametrize(
    "name",
    [
        *("dlr-up-to-throughput", "dlr-up-to-latency"),
        *("iowait-tracks-performance", "iowait-50-drastic", "iowait-quick"),
        *("threshold-0.2-best-rand", "threshold-0.2-best-write"),
        *("affinity-sets-primaries", "affinity-hot-below-calm"),
        *("affinity-steps-down", "affinity-rises-after"),
        *("gain-in-time-heterogeneity-seq", "gain-in-time-interference-rand"),
        "reweight-moves-data",
    ],
)
def test_runs_decide_each_further_statement(tmp_path: Path, name: str, effect: str) -> None:
    for block in range(6):
        write_statement(tmp_path / "dlr-full", name, effect == "confirmed", block)
    result = JudgedCampaign(tmp_path / "dlr-full")[name]
    assert (result.effect, result.n) == (effect, 30 if "tracks" in name else 6)


def test_statements_that_no_cell_shows_are_not_run(tmp_path: Path) -> None:
    results = JudgedCampaign(write_campaign(tmp_path, with_samples=False))
    for name in ("dlr-moves-no-data", "reads-from-primary", "interval-short-noisy"):
        assert results[name].effect == "not run" and results[name].unreachable is None
    assert results["ranking-small-services"].unreachable is not None


def test_a_shortened_cell_does_not_get_into_another_figure(tmp_path: Path) -> None:
    """Figure 10 also runs the standard cells, but for half the time."""
    campaign = tmp_path / "dlr-full"
    for block in range(3):
        for controller, long, short in (("default", 100.0, 50.0), ("dlr", 150.0 + block, 40.0)):
            cell = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
            write_quick(campaign, cell, block, long)
            write_quick(campaign, cell | {"duration_s": 90}, block, short)
    result = JudgedCampaign(campaign)["dlr-heterogeneity-seq-throughput"]
    assert result.measured == pytest.approx(0.51, abs=0.01)
    assert result.n == 3


def test_a_controller_beats_dlr_over_all_reads(tmp_path: Path) -> None:
    """Settings differ more than controllers; a block that lacks one does not count."""
    campaign = tmp_path / "dlr-full"
    gains = {("seq", "heterogeneity"): 1.4, ("seq", "interference"): 0.8}
    for block in range(4):
        for op, scenario in itertools.product(("seq", "rand"), ("heterogeneity", "interference")):
            cell = {"op": op, "scenario": scenario}
            gain = gains.get((op, scenario), 1.1 + 0.01 * block)
            level = 100.0 * (1 + block)
            write_quick(campaign, cell | {"controller": "dlr"}, block, level)
            if (block, op, scenario) != (3, "rand", "interference"):
                write_quick(campaign, cell | {"controller": "dlr-pg"}, block, level * gain)
    results = JudgedCampaign(campaign)
    result = results["dlr-pg-beats-dlr"]
    middle = (1.4 * 0.8) ** 0.25 * (1.10 * 1.11 * 1.12) ** (1 / 6) - 1
    assert result.measured == pytest.approx(middle)
    assert (result.n, result.effect) == (3, "confirmed")
    assert results["dlr-auto-beats-dlr"].effect == "not run"


def test_a_slower_block_does_not_hide_the_effect_of_load(tmp_path: Path) -> None:
    """Seen with figure 3: a block of another day read a fifth slower under every mix."""
    campaign = tmp_path / "dlr-full"
    for block, level in enumerate((100.0, 150.0, 140.0)):
        for step, mix in enumerate("ABCDE"):
            cell = {"op": "seq", "scenario": "mix", "mix": mix, "controller": "default"}
            # the slowest block has the least pressure
            pressures = {f"osd{n}": 10.0 + 15 * step + 5 * block for n in range(4)}
            write_quick(campaign, cell, block, level * (1 - 0.05 * step), pressures=pressures)
    found = JudgedCampaign(campaign)["mean-pressure-hurts"]
    assert found.effect == "confirmed"
    assert found.measured is not None
    assert found.measured < -0.9


def test_each_parameter_of_section_5_c_selects_rows() -> None:
    """The longest runs of a campaign count; a row without a signal or duration may exist."""
    columns = ("op", "concurrency", "signal", "duration_s", "campaign")
    values = (("seq", "rand"), (16, 1), ("node", None), (30.0, 60.0, None), ("a", "b"))
    rows = pd.DataFrame(itertools.product(*values), columns=columns)
    fixed = ("object_size", "variant", "objectstore", "disk")
    rows = rows.assign(**{name: STANDARD[name] for name in fixed})
    rows = rows[~((rows["campaign"] == "a") & (rows["duration_s"] == 60.0))]
    found = select(rows, op="seq")
    assert set(found["signal"]) == {"node"} and set(found["concurrency"]) == {16}
    shown = sorted(zip(found["campaign"], found["duration_s"].fillna(0.0), strict=True))
    assert shown == [("a", 0.0), ("a", 30.0), ("b", 0.0), ("b", 60.0)]
    assert len(select(rows, concurrency=1, duration_s=30.0)) == 4
    assert select(rows, op="x").empty and select(rows.iloc[:0], op="seq").empty


def gain_of(controller: str, osds: int, share: float, move: float | None) -> float:
    """Return the true gain: DLR's ends above 25 % hot nodes and below 30 s; dlr-pg's does not."""
    if controller == "default":
        return 0.0
    hot = 0.4 * (1 - share / 0.25)
    gain = hot if controller == "dlr" else 0.5
    if move is not None:
        gain = 0.3 * math.log10(move / 30) if controller == "dlr" else 0.2
    return gain + 0.02 * math.log10(osds / 100)


def write_scale(artifacts: Path, cells: list[tuple[Cell, int, float]], *, inert: str = "") -> Path:
    """Write runs of cell, block and throughput, each once, as the campaign dlr-scale."""
    campaign = artifacts / "dlr-scale"
    written = set()
    for cell, block, value in cells:
        key = json.dumps([cell, block], sort_keys=True)
        if key not in written:
            written.add(key)
            is_inert = cell["controller"] == inert
            write_quick(campaign, cell, block, value, ground="sim", inert=is_inert)
    body = {"campaign": {"paper": "dlr-scale", "ground": "sim"}}
    (campaign / "campaign.json").write_text(json.dumps(body))
    return campaign


def sweep(artifacts: Path) -> Path:
    """Write a campaign over all axes with three blocks."""
    random = np.random.default_rng(5)
    static = {"scenario": "heterogeneity"}
    cells: list[Cell] = [
        *({**static, "osds": osds, "hot_share": 0.05} for osds in (100, 1000, 10_000)),
        *({**static, "osds": 100, "hot_share": share} for share in (0.01, 0.05, 0.2, 0.5)),
    ]
    moving = {"osds": 100, "hot_share": 0.25, "scenario": "interference", "duration_s": 360}
    cells += [moving | {"move_every_s": move} for move in (5.0, 10.0, 60.0, 600.0)]
    runs = []
    for block in range(3):
        shared = random.normal(1, 0.2)
        for cell in cells:
            for controller in ("default", "dlr", "dlr-pg", "reweight"):
                move = cell.get("move_every_s")
                gain = 0.0
                if controller != "reweight":
                    gain = gain_of(controller, cell["osds"], cell["hot_share"], move)
                value = 10 * cell["osds"] * shared * (1 + gain) * random.normal(1, 0.005)
                parameters = {"op": "rand", "controller": controller, "duration_s": 60, **cell}
                runs.append((parameters, block, value))
    return write_scale(artifacts, runs, inert="reweight")


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
        assert not found["reweight"].gains
        assert {gain.n for gain in found["dlr"].gains.values()} == {3}
    (dlr,) = [curve for curve in curves(rows, OSDS) if curve.controller == "dlr"]
    assert list(dlr.gains) == [100, 1000, 10_000]
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
    assert parameters_text(grown) == "max_swaps 8 an OSD"
    assert parameters_text(variant_rows((100, few, 1), (500, many, 1))) == "max_swaps 800 to 8,000"
    # Its defaults count if it ran with them, otherwise the most frequent parameters.
    assert set(usual(variant_rows((100, few, 9), (100, "{}", 2)))["variant"]) == {"{}"}
    assert set(usual(variant_rows((100, few, 2), (100, many, 3)))["variant"]) == {many}
    assert usual(grown.head(0)).empty


@pytest.mark.slow
def test_parameters_that_grow_are_in_curve_table_and_claims(tmp_path: Path) -> None:
    runs = []
    for block, osds in itertools.product(range(3), (100, 1000)):
        for controller, factor in (("default", 1.0), ("dlr", 1.1), ("dlr-pg", 1.3)):
            cell: Cell = {"op": "rand", "scenario": "heterogeneity", "controller": controller}
            cell |= {"osds": osds, "hot_share": 0.25}
            if controller == "dlr-pg":
                cell["controller_parameters"] = {"max_swaps": 8 * osds}
            value = (50 + block) * osds * factor * (1 + 0.001 * block * factor)
            runs.append((cell, block, value))
    write_scale(tmp_path, runs)
    made = build(tmp_path, "dlr-scale")
    (stops,) = made.tables
    by_name = {row["controller"]: row for row in stops.as_json()}
    assert by_name["dlr-pg"]["parameters"] == "max_swaps 8 an OSD"
    assert by_name["dlr-pg"]["helps"] == "everywhere, 100 OSDs to 1,000 OSDs"
    assert by_name["dlr"]["parameters"] == "–"
    claims = {claim.id: claim for claim in made.claims}
    for osds in (100, 1000):
        measured = claims[f"scale-dlr-pg-beats-dlr-{osds}"].measured
        assert measured == pytest.approx(1.3 / 1.1 - 1, rel=0.02)


@pytest.mark.slow
def test_the_report_has_figures_tables_and_claims_labelled_simulated(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = texts_by_figure(monkeypatch)
    made = build(swept.parent, "dlr-scale")
    assert {figure.entry.id for figure in made.figures if figure.path} == {"osds", "hot", "move"}
    for name in ("osds", "hot", "move"):
        assert (swept / "figures" / f"dlr-scale-fig{name}.png").stat().st_size > 10_000
    assert {"simulated", "1,000", "50 %", "600 s", "DLR per placement group"} <= texts_of(texts)
    page = made.path.read_text()
    assert "Where each stops helping: share of hot nodes" in page
    assert "<b>Simulated.</b>" in page
    assert "The paper's numbers" not in page
    assert (swept / "stops-hot.csv").read_text().startswith("op,OSDs,")
    claims = {claim.id: claim for claim in made.claims}
    assert {claim.paper_value for claim in made.claims} == {None}
    assert not any(claim.reproduced for claim in made.claims)
    assert claims["scale-dlr-hot-1-of-100"].effect == "confirmed"
    assert claims["scale-dlr-hot-50-of-100"].effect == "contradicted"
    assert claims["scale-dlr-hot-1-of-1000"].effect == "not run"
    assert claims["scale-dlr-move-600"].effect == "confirmed"
    assert claims["scale-dlr-move-5"].effect == "confirmed"  # the claim is about a decrease


@pytest.mark.slow
def test_sizes_are_compared_by_block_over_one_duration(tmp_path: Path) -> None:
    """A longer run of one size, for another figure, is not compared with shorter ones."""
    runs = []
    shown = ((100, 40, 1.2), (1000, 40, 1.5), (100, 180, 3.0))
    for block, (osds, duration_s, gain) in itertools.product(range(3), shown):
        for controller, factor in (("default", 1.0), ("dlr", gain), ("dlr-pg", gain + 0.2)):
            cell: Cell = {"op": "rand", "scenario": "heterogeneity", "controller": controller}
            cell |= {"osds": osds, "hot_share": 0.25, "duration_s": duration_s}
            runs.append((cell, block, (50 + 20 * block) * factor * (1 + 0.001 * block)))
    write_scale(tmp_path, runs)
    claims = {claim.id: claim for claim in build(tmp_path, "dlr-scale").claims}
    assert claims["scale-dlr-100"].measured == pytest.approx(0.2)
    assert claims["scale-dlr-1000"].measured == pytest.approx(0.5)
    assert claims["scale-dlr-gain-1000"].measured == pytest.approx(0.25)
    assert claims["scale-dlr-pg-beats-dlr-100"].measured == pytest.approx(1.4 / 1.2 - 1)
    assert claims["scale-dlr-10000"].effect == "not run"
