"""Claims and figures of real microstores on runs with known values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic_mos import LARGE_MB_S, MB_S, QPS, SMALL_QPS, write_all, write_setups

from analysis.core.claims import Evidence, evaluate
from analysis.core.columns import paired
from analysis.core.load import load_campaign
from analysis.core.papers import paper
from analysis.papers.mos.catalogue import PARTS
from analysis.papers.mos.local.catalogue import FIGURES, LOCAL
from analysis.papers.mos.local.course_figures import promised, windows
from analysis.papers.mos.local.runs import REPORT_FILE, cells, table
from analysis.papers.mos.local.tables import tables
from campaigns.engine.campaign_file import find_campaign
from campaigns.engine.campaign_file import load_campaign as campaign_of
from campaigns.papers.mos.live.cell import REPORT_FILE as WRITTEN_FILE
from campaigns.validate import figures_of
from schemas.claim import ClaimResult

CLAIMS = LOCAL.claims


def evidence_of(campaign: Path) -> Evidence:
    runs = load_campaign(campaign).runs
    assert all(LOCAL.takes(run.run) for run in runs)
    return Evidence(table(runs), runs)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return evidence_of(write_all(tmp_path_factory.mktemp("artifacts")))


@pytest.fixture(scope="module")
def results(evidence: Evidence) -> dict[str, ClaimResult]:
    return {claim.id.removeprefix("mos-local-"): evaluate(claim, evidence) for claim in CLAIMS}


def test_parameters_and_files_are_the_campaigns() -> None:
    assert REPORT_FILE == WRITTEN_FILE
    assert LOCAL in PARTS
    known = figures_of(campaign_of(find_campaign("mos-local")))
    assert {entry.campaign for entry in FIGURES} == set(known)
    assert set(LOCAL.figures) <= set(paper("mos").figures)
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.figure for claim in CLAIMS} <= {entry.id for entry in FIGURES}


def test_every_claim_names_its_baseline_or_is_no_comparison() -> None:
    for claim in CLAIMS:
        if claim.unit == "ratio":
            assert claim.baseline, claim.id


def test_claims_are_measured_within_blocks(results: dict[str, ClaimResult]) -> None:
    expected = {
        "small-favors-small": SMALL_QPS["favors-small"] / SMALL_QPS["default"],
        "small-favors-large": SMALL_QPS["favors-large"] / SMALL_QPS["default"],
        "large-favors-small-c": LARGE_MB_S["default"] / LARGE_MB_S["favors-small"],
        "large-favors-large": LARGE_MB_S["favors-large"] / LARGE_MB_S["default"],
        "latency-favors-large": 0.8,
        "latency-a-default": 0.2,
        "latency-c-favors-large": 5 / 0.8,
        "proxy-linear": 1.0,
        "proxy-second": 1.7,
        "proxy-workers": 1.0,
        "proxy-network": 1.0,
        "storage-equal": 1.0,
        "network-a-ssd": 1.7,
        "network-a-hdd": 1.15,
        "network-c-ssd": 9.0,
        "network-disks": 1.7 / 1.15,
        "disks-slow-network": 1.0,
        "disks-worst": 8.0 / 13.0,
        "disks-mixed": 18.0 / 18.75,
        "static-small": (30 * 1.7 + 2) / 32,
        "tail-static": (1.7 / 2.0) ** 3,
        "large-bandwidth-static": MB_S["mos-pp"] / MB_S["static"],
        "spike-default": QPS["mos-pp"] / QPS["default"],
        "throughput-default": (60 + 2) / 32,
        "throughput-most": (60 + 2) / 32,
        "bandwidth-most": MB_S["mos-pp"] / MB_S["static"],
        "bandwidth-least": MB_S["mos-pp"] / MB_S["default"],
        "network-most": 0.9,
        "network-freed": 0.55,
        "network-given": 0.15,
    }
    for name, value in expected.items():
        found = results[name]
        assert found.measured == pytest.approx(value, rel=0.02), name
        assert (found.n, found.ground) == (2, "local"), name


def test_verdicts_follow_from_the_values(results: dict[str, ClaimResult]) -> None:
    verdicts = {name: one.verdict for name, one in results.items()}
    # Directions count as reproduced; sizes on a modelled machine do not.
    assert verdicts["latency-favors-large"] == "reproduced"
    assert verdicts["small-favors-small"] == "direction"
    assert verdicts["large-favors-large"] == "reproduced"
    assert verdicts["disks-worst"] == "reproduced"
    assert verdicts["default-large"] == "reproduced"
    assert verdicts["hdd-share"] == "not run"
    assert "of workload" in str(results["latency-favors-large"].note)


def judged(evidence: Evidence, name: str) -> ClaimResult:
    """Return one evaluated claim."""
    (claim,) = (claim for claim in CLAIMS if claim.id == f"mos-local-{name}")
    return evaluate(claim, evidence)


def changed(
    evidence: Evidence, column: str, factor: float, experiment: str, **cell: object
) -> Evidence:
    """Return the evidence with one number changed in the matching runs."""
    other = evidence.table.copy()
    other.loc[cells(other, experiment, **cell).index, column] *= factor
    return Evidence(other, evidence.runs)


def test_an_sla_that_the_baseline_never_holds_counts(evidence: Evidence) -> None:
    """As a ratio, such a block would not exist."""
    never = changed(evidence, "A_sla_met", 0.0, "adaptation", setup="default")
    found = judged(never, "sla-a-default")
    assert found.measured == pytest.approx(0.45 * QPS["mos-pp"], rel=0.02)
    assert (found.n, found.unit, found.no_effect) == (2, "share of the time", 0)
    assert found.verdict == "reproduced"
    worse = changed(evidence, "A_sla_met", 0.0, "adaptation", setup="mos-pp")
    assert judged(worse, "sla-a-static").verdict == "not reproduced"


def test_the_worst_is_worse_than_each_at_every_load(evidence: Evidence) -> None:
    for name in ("tail-default", "tail-default-static"):
        assert judged(evidence, name).verdict == "reproduced"
        other = changed(evidence, "A_p95_s", 0.1, "load", setup="default", small_workers=2)
        found = judged(other, name)
        assert found.verdict == "not reproduced"
        assert "at small_workers = 2" in str(found.note)
    assert judged(evidence, "disks-worst").verdict == "reproduced"
    other = changed(evidence, "mb_s", 0.1, "disks", network_mbit=150, ssds=1)
    found = judged(other, "disks-worst")
    assert (found.verdict, found.baseline) == ("not reproduced", "each other choice")


def test_utilization_is_close_or_modest_beside_the_other(evidence: Evidence) -> None:
    """Any utilization is above 0."""
    assert judged(evidence, "proxy-cpu").verdict == "direction"
    assert judged(evidence, "proxy-network-cpu").verdict == "direction"
    idle = changed(evidence, "proxy_busy", 0.1, "proxy", workload="A")
    assert judged(idle, "proxy-cpu").verdict == "not reproduced"
    busy = changed(evidence, "proxy_busy", 7.0, "proxy", workload="C")
    assert judged(busy, "proxy-network-cpu").verdict == "not reproduced"


def test_compared_to_both_is_not_told_of_one(evidence: Evidence) -> None:
    rows = evidence.table
    alone = rows.drop(cells(rows, "load", setup="default", small_workers=8).index)
    for end in ("most", "least"):
        found = judged(Evidence(alone, evidence.runs), f"throughput-{end}")
        assert found.verdict == "not run"
        assert "Default with 8 workers of A" in str(found.note)


def test_both_readings_of_the_same_percentages_are_listed() -> None:
    told = {claim.id: claim for claim in CLAIMS}
    first = [c for c in CLAIMS if c.paper_value == 1.896]
    assert {c.baseline for c in first} == {"Default and Static", "Default"}
    second = [c for c in CLAIMS if c.paper_value == 1.798]
    assert {c.baseline for c in second} == {"Default and Static", "Static"}
    assert told["mos-local-tail-static"].baseline == "Static"
    assert {c.baseline for c in CLAIMS if c.paper_value == 2.1} == {"Default", "Static"}


def test_without_runs_nothing_is_claimed(tmp_path: Path) -> None:
    nothing = Evidence(table([]), [])
    assert {evaluate(claim, nothing).verdict for claim in CLAIMS} == {"not run"}
    for entry in FIGURES:
        assert hasattr(entry.draw(nothing, tmp_path, "x"), "runs"), entry.id
    assert tables(table([])) == []


def test_a_single_block_has_no_interval(tmp_path: Path) -> None:
    campaign = tmp_path / "mos-quick"
    write_setups(campaign, 0)
    evidence = evidence_of(campaign)
    found = {claim.id: evaluate(claim, evidence) for claim in CLAIMS}
    assert found["mos-local-small-favors-small"].verdict == "inconclusive"
    assert found["mos-local-spike-default"].verdict == "not run"
    one = cells(evidence.table, "setups", setup="default")
    assert paired(one.iloc[:0], one, "small_qps") is None
    assert paired(one, one, "missing") is None


def test_blocks_of_two_testbeds_are_not_paired(tmp_path: Path) -> None:
    """mos-quick and mos-local have the same seeds and different disks."""
    write_setups(tmp_path / "mos-quick", 0)
    write_setups(tmp_path / "mos-local", 0, spec="another")
    runs = [
        *load_campaign(tmp_path / "mos-quick").runs,
        *load_campaign(tmp_path / "mos-local").runs,
    ]
    rows = table(runs)
    small, default = (cells(rows, "setups", setup=name) for name in ("favors-small", "default"))
    both = paired(small, default, "small_qps")
    assert both is not None
    assert both.n == 2
    mine, theirs = small[small["spec"] == "mos"], default[default["spec"] != "mos"]
    assert paired(mine, theirs, "small_qps") is None


@pytest.mark.slow
def test_tables_tell_of_every_setup(evidence: Evidence) -> None:
    setups, loads, courses, alone = tables(evidence.table)
    assert [row[0] for row in setups.rows] == ["Default", "FavorsSmall", "FavorsLarge"]
    assert [row[0] for row in loads.rows] == [
        x for x in ("2/16", "8/8", "16/4", "32/2") for _ in "123"
    ]
    assert [row[0] for row in courses.rows] == ["Default", "Static", "MOS++"]
    assert len(alone.rows) == 4 + (3 + 1 + 3 + 1 + 1) + 8 + 8 + 16
    for one in (setups, loads, courses, alone):
        assert all(len(row) == len(one.heads) for row in one.rows)


def test_what_is_promised_is_a_number_of_each_window() -> None:
    """Runs report the promise for each second; a few report one number for all seconds."""
    told = {"minute_s": 1.0, "series": {"C": {"bytes": [0.0] * 4}}}
    for bytes_s, limit in (([3e6, 5e6, 1e6, 1e6], [4e6, 1e6]), (12e6, [12e6, 12e6])):
        sla = {"latency_s": 0.09, "bytes_s": bytes_s}
        assert list(promised({**told, "sla": sla}, "bytes")) == limit
        assert list(promised({**told, "sla": sla}, "latency")) == [0.09, 0.09]


def test_windows_are_means_and_rates() -> None:
    series = {
        "ops": [1.0, 3.0] * 10,
        "reads": [0.0] * 10 + [2.0] * 10,
        "read_s": [0.0] * 10 + [1.0] * 10,
    }
    assert list(windows(series, 5.0, "ops")) == [2.0, 2.0]
    latency = windows(series, 5.0, "latency")
    assert np.isnan(latency[0])
    assert latency[1] == 0.5


@pytest.mark.slow
def test_every_figure_is_drawn(evidence: Evidence, tmp_path: Path) -> None:
    for entry in FIGURES:
        drawn = entry.draw(evidence, tmp_path, f"figure-{entry.id}")
        assert isinstance(drawn, Path), entry.id
        assert drawn.stat().st_size > 5000
