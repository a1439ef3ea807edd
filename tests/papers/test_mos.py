"""Claims, figures and tables of the MOS paper (HPDC 2016), from runs with known values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.core import style
from analysis.core.claims import Evidence, evaluate
from analysis.core.evidence import quotient
from analysis.core.figures import Missing
from analysis.core.load import load_campaign
from analysis.core.papers import Part
from analysis.core.report import draw
from analysis.papers.mos.claims import cells
from analysis.papers.mos.figures import LOCAL, promised, windows
from analysis.papers.mos.gateway import GATEWAY, bar_of
from analysis.papers.mos.simulated import CROWDED, SERIES_FILE, STAGES, WINDOW_MINUTES, within
from analysis.papers.mos.simulated_figures import SIMULATED
from schemas.claim import ClaimResult
from tests.papers.mos_runs import (
    EPOCHS,
    LARGE_MB_S,
    MB_S,
    QPS,
    SMALL_QPS,
    write_all,
    write_course,
    write_gateway,
    write_setups,
    write_simulated,
    write_simulated_run,
)

Results = Mapping[str, ClaimResult]


def evidence_of(part: Part, *campaigns: Path) -> Evidence:
    runs = [run for campaign in campaigns for run in load_campaign(campaign).runs]
    assert all(part.takes(run.run) for run in runs)
    return Evidence(part.tabulate(runs), runs)


def results_of(part: Part, evidence: Evidence) -> dict[str, ClaimResult]:
    """Return the evaluated claims by name without the campaign's."""
    return {claim.id.split("-", 2)[2]: evaluate(claim, evidence) for claim in part.claims}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return evidence_of(LOCAL, write_all(tmp_path_factory.mktemp("artifacts")))


@pytest.fixture(scope="module")
def cosperf(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return evidence_of(SIMULATED, write_simulated(tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return evidence_of(GATEWAY, write_gateway(tmp_path_factory.mktemp("runs") / "mos-gateway"))


@pytest.fixture(scope="module")
def local_results(local: Evidence) -> Results:
    return results_of(LOCAL, local)


@pytest.fixture(scope="module")
def cosperf_results(cosperf: Evidence) -> Results:
    return results_of(SIMULATED, cosperf)


def judged(part: Part, evidence: Evidence, name: str) -> ClaimResult:
    """Return one evaluated claim."""
    (claim,) = (claim for claim in part.claims if claim.id == name)
    return evaluate(claim, evidence)


def local_claim(evidence: Evidence, name: str) -> ClaimResult:
    return judged(LOCAL, evidence, f"mos-local-{name}")


def changed(
    evidence: Evidence, column: str, factor: float, experiment: str, **cell: object
) -> Evidence:
    """Return the evidence with one number changed in the matching runs."""
    other = evidence.table.copy()
    other.loc[cells(other, experiment, **cell).index, column] *= factor
    return Evidence(other, evidence.runs)


# ---- Every part ----


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "runs"), [(LOCAL, "local"), (SIMULATED, "cosperf"), (GATEWAY, "gateway")]
)
def test_every_figure_is_drawn(
    part: Part, runs: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for entry in part.figures:
        drawn = entry.draw(request.getfixturevalue(runs))
        assert not isinstance(drawn, Missing), entry.id
        path = style.save(drawn, tmp_path, f"figure-{entry.id}")
        assert path.stat().st_size > 5000


# ---- Real microstores (sections 1, 3 and 8.1) ----


def test_claims_are_measured_within_blocks(local_results: Results) -> None:
    """Figures 1 to 5 and 8 to 12: each claim has the value that the runs were written with."""
    expected = {
        "small-favors-small": SMALL_QPS["favors-small"] / SMALL_QPS["default"],
        "small-favors-large": SMALL_QPS["favors-large"] / SMALL_QPS["default"],
        "large-favors-small-c": LARGE_MB_S["default"] / LARGE_MB_S["favors-small"],
        "large-favors-large": LARGE_MB_S["favors-large"] / LARGE_MB_S["default"],
        "latency-favors-large": 0.8,
        "latency-a-default": 0.2,
        "latency-c-favors-large": 5 / 0.8,
        "size-latency": 89.6,
        "proxy-linear": 1.0,
        "proxy-cpu": 0.9975,
        "proxy-second": 1.7,
        "proxy-workers": 1.0,
        "proxy-network": 1.0,
        "storage-equal": 1.0,
        "storage-disks": 0.42,
        "network-a-ssd": 1.7,
        "network-a-hdd": 1.15,
        "network-c-ssd": 9.0,
        "network-disks": 1.7 / 1.15,
        "disks-slow-network": 1.0,
        "disks-worst": 8.0 / 13.0,
        "disks-mixed": 18.0 / 18.75,
        "static-small": (30 * 1.7 + 2) / 32,
        "default-large": 1.1,
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
        "linear-mos-pp": 0.758,
        "stage-1-begins": MB_S["mos-pp"] / MB_S["static"],
        "stage-1-time": 6,
        "stage-1-static-sla": 1,
        "stage-3-default": 11 / 14.9,
        "write-trend": QPS["static"] / QPS["mos-pp"],
    }
    for name, value in expected.items():
        found = local_results[name]
        assert found.measured == pytest.approx(value, rel=0.02), name
        assert (found.n, found.ground) == (6, "local"), name


def test_an_sla_that_the_baseline_never_holds_counts(local: Evidence) -> None:
    """Figure 11(b): as a ratio, such a block would not exist."""
    never = changed(local, "A_sla_met", 0.0, "adaptation", setup="default")
    found = local_claim(never, "sla-a-default")
    assert found.measured == pytest.approx(0.4725 * QPS["mos-pp"], rel=0.02)
    assert (found.n, found.unit, found.no_effect) == (6, "difference of shares", 0)
    assert found.effect == "confirmed"
    worse = changed(local, "A_sla_met", 0.0, "adaptation", setup="mos-pp")
    assert local_claim(worse, "sla-a-static").effect == "contradicted"


def test_the_worst_is_worse_than_each_at_every_load(local: Evidence) -> None:
    """Figures 5 and 9."""
    for name in ("tail-default", "tail-default-static"):
        assert local_claim(local, name).effect == "confirmed"
        other = changed(local, "A_p95_s", 0.1, "load", setup="default", small_workers=2)
        found = local_claim(other, name)
        assert found.effect == "contradicted"
        assert "at small_workers 2" in str(found.note)
    assert local_claim(local, "disks-worst").effect == "confirmed"
    other = changed(local, "mb_s", 0.1, "disks", network_mbit=150, ssds=1)
    found = local_claim(other, "disks-worst")
    assert (found.effect, found.baseline) == ("contradicted", "other-disks")


def test_both_readings_of_the_same_percentages_are_listed(local: Evidence) -> None:
    """Sections 8.1 and 10; a comparison with both baselines needs every load of both."""
    for value, baseline in ((1.896, "default"), (1.798, "static")):
        found = {claim.baseline for claim in LOCAL.claims if claim.paper_value == value}
        assert found == {"default+static", baseline}
    rows = local.table
    alone = rows.drop(cells(rows, "load", setup="default", small_workers=8).index)
    for end in ("most", "least"):
        found = local_claim(Evidence(alone, local.runs), f"throughput-{end}")
        assert found.effect == "not run"
        assert "Default with 8 workers of A" in str(found.note)


def test_blocks_of_two_testbeds_are_not_paired(tmp_path: Path) -> None:
    """The campaigns mos-quick and mos-local have the same seeds and different disks."""
    write_setups(tmp_path / "mos-quick", 0)
    write_setups(tmp_path / "mos-local", 0, spec="another")
    rows = evidence_of(LOCAL, tmp_path / "mos-quick", tmp_path / "mos-local").table
    small, default = (cells(rows, "setups", setup=name) for name in ("favors-small", "default"))
    both = quotient(small, default, "small_qps")
    assert both is not None
    assert both.n == 2
    mine, theirs = small[small["spec"] == "mos"], default[default["spec"] != "mos"]
    assert quotient(mine, theirs, "small_qps") is None


Statement = tuple[str, str, float, str, str, float, dict[str, object]]
_DEFAULT: dict[str, object] = {"setup": "default"}
STATEMENTS: list[Statement] = [
    ("interference-cause", "setups", 2 / 15, "confirmed", "storage_cores_used", 10, _DEFAULT),
    ("size-link", "sizes", 1.05, "confirmed", "mb_s", 0.3, {"object_kb": 16_000}),
    # Any utilization is above 0, so that 85 % and 25 % are each other's no effect (figure 3).
    ("proxy-cpu", "proxy", 0.9975, "confirmed", "proxy_busy", 0.1, {"workload": "A"}),
    ("proxy-network-cpu", "proxy", 0.1575, "confirmed", "proxy_busy", 7.0, {"workload": "C"}),
    ("bottleneck-a", "proxy", 0.352 / 0.95, "confirmed", "mb_s", 10, {"workload": "A"}),
    ("bottleneck-c", "proxy", 1.0 / 0.15, "confirmed", "mb_s", 0.1, {"workload": "C"}),
    ("storage-fewer", "storage", 2, "confirmed", "qps", 0.1, {"storage_cores": 0.2}),
    ("storage-disks", "storage", 0.42, "confirmed", "disk_busy_mean", 2.4, {"workload": "C"}),
    ("network-a-cheap", "network", 1 / 1.15, "contradicted", "qps", 0.5, {"ssds": 0}),
    ("disks-slow-network-1-ssd", "disks", 1, "confirmed", "mb_s", 0.5, {"ssds": 1}),
    ("disks-choice", "disks", 18.75 / 8, "confirmed", "mb_s", 9, {"ssds": 0, "network_mbit": 150}),
    ("static-balances", "load", 53 / 32, "confirmed", "A_qps", 0.1, {"setup": "static"}),
    ("start-throughput", "load", 62 / 53, "contradicted", "A_qps", 0.86, {"setup": "mos-pp"}),
    ("corner-mos-pp", "load", 92 / 62, "confirmed", "A_qps", 0.1, {"setup": "mos-pp"}),
    ("static-bound", "load", 2, "contradicted", "C_mb_s", 0.5, {"large_workers": 16}),
    ("mean-trend", "load", 1.1 / 1.6, "confirmed", "C_mean_s", 0.1, _DEFAULT),
    ("abstract-tail", "load", 1 / 8, "confirmed", "A_p95_s", 90, {"setup": "mos-pp"}),
    ("course-c-static", "adaptation", 1.6, "confirmed", "C_mb_s", 0.1, {"setup": "mos-pp"}),
    ("efficiency-network", "adaptation", 2.4, "confirmed", "C_mb_s", 0.1, {"setup": "mos-pp"}),
    ("solver", "adaptation", 0.21, "confirmed", "decide_s_max", 100, {"setup": "mos-pp"}),
]
"""Claim, experiment, value and effect, and a change of a column in some cells that reverses it."""


@pytest.mark.parametrize("row", STATEMENTS, ids=lambda row: row[0])
def test_statements_are_confirmed_or_contradicted(local: Evidence, row: Statement) -> None:
    name, experiment, value, effect, column, factor, cell = row
    found = local_claim(local, name)
    assert found.measured == pytest.approx(value, rel=0.02)
    assert found.effect == effect
    other = local_claim(changed(local, column, factor, experiment, **cell), name)
    assert {found.effect, other.effect} == {"confirmed", "contradicted"}


def test_what_microstores_hold_decides_statements(tmp_path: Path) -> None:
    """Figure 12, as the paper has it and the other way round."""
    changes = ("stage-1-cpu", "stage-2-proxies", "stage-2-storage", "stage-2-large")
    names = (*changes, "decline-cpu", "decline-network", "reacts")
    courses = {
        "confirmed": ((-1, 0.3, 0.7), (24, 0.1, 0.9), (44, 0.5, 0.2), (100, 0.2, 0.6)),
        "contradicted": ((-1, 0.1, 0.7), (24, 0.3, 0.2), (58, 0.1, 0.7), (100, 0.3, 0.2)),
    }
    for effect, lines in courses.items():
        for block in range(6):
            part = 1 - 0.02 * block
            varied = [(float(at), part * small, part * large) for at, small, large in lines]
            write_course(tmp_path / effect, block, varied)
        found = evidence_of(LOCAL, tmp_path / effect)
        assert {name: local_claim(found, name).effect for name in names} == dict.fromkeys(
            names, effect
        )


def test_a_controller_that_changes_nothing_counts_to_the_end(tmp_path: Path) -> None:
    """Figure 12: such a run does not support that MOS++ reacts, or that C soon has the most."""
    for block in range(6):
        write_course(tmp_path / "mos-local", block, [(-1.0, 0.3, 0.7)])
    found = evidence_of(LOCAL, tmp_path / "mos-local")
    for name in ("reacts", "stage-1-time"):
        result = local_claim(found, name)
        assert (result.effect, result.n) == ("contradicted", 6), name


def test_windows_of_a_changing_load_are_means_rates_and_promises() -> None:
    """Figure 11. Runs report C's promise for each second; a few report one number for all."""
    series = {
        "ops": [1.0, 3.0] * 10,
        "reads": [0.0] * 10 + [2.0] * 10,
        "read_s": [0.0] * 10 + [1.0] * 10,
    }
    assert list(windows(series, 5.0, "ops")) == [2.0, 2.0]
    latency = windows(series, 5.0, "latency")
    assert np.isnan(latency[0])
    assert latency[1] == 0.5
    course = {"minute_s": 1.0, "series": {"C": {"bytes": [0.0] * 4}}}
    for bytes_s, limit in (([3e6, 5e6, 1e6, 1e6], [4e6, 1e6]), (12e6, [12e6, 12e6])):
        sla = {"latency_s": 0.09, "bytes_s": bytes_s}
        assert list(promised({**course, "sla": sla}, "bytes")) == limit
        assert list(promised({**course, "sla": sla}, "latency")) == [0.09, 0.09]


# ---- Fifty machines, simulated (section 8.2) ----


def test_a_wrong_model_costs(cosperf_results: Results) -> None:
    for kind in ("error", "own-runs-error"):
        gains = [cosperf_results[f"{kind}-{error}"].measured or 0.0 for error in (0, 10, 20, 30)]
        assert all(gains)
        assert gains == sorted(gains, reverse=True)
    expected = {"error-costs-without-learning": 0.82, "other-runs-cost": 1.0, "error-costs": 0.91}
    for name, value in expected.items():
        assert cosperf_results[name].measured == pytest.approx(value, rel=0.02)
    assert cosperf_results["error-costs"].effect == "confirmed"


@pytest.mark.parametrize("span", [CROWDED, *STAGES.values()])
def test_no_window_of_a_span_ends_after_it(span: tuple[float, float]) -> None:
    middles = np.arange(WINDOW_MINUTES / 2, STAGES[4][1], WINDOW_MINUTES)
    inside = within(pd.Series(middles, middles), span)
    assert inside.max() + WINDOW_MINUTES / 2 == span[1]


def test_held_resources_decide_claims(cosperf_results: Results) -> None:
    """Section 8.2: MOS uses everything from stage 3 on, and gives C and D more than they need."""
    assert cosperf_results["all-used"].measured == pytest.approx(1.0)
    assert cosperf_results["all-used"].effect == "confirmed"
    assert cosperf_results["all-used-pp"].measured == pytest.approx(0.8)
    assert cosperf_results["all-used-pp"].effect == "contradicted"
    assert cosperf_results["just-enough"].measured == pytest.approx(1.25)


def test_statements_about_both_policies_are_of_each(
    cosperf_results: Results, tmp_path: Path
) -> None:
    """Section 8.2: runs in which the opposite happens contradict."""
    expected = {"stage-1-sla": 1.0, "stage-4-band-pp": 1.0, "linear": 1.0, "network-use": 0.8}
    for name, value in expected.items():
        assert cosperf_results[name].measured == pytest.approx(value), name
    assert cosperf_results["stage-1-sla"].effect == "confirmed"
    assert cosperf_results["stage-4-band-pp"].effect == "confirmed"
    cores = cosperf_results["cores"]
    assert (cores.kind, cores.measured, cores.effect, cores.ci95) == (
        *("exact", 400, "contradicted", None),
    )
    names = ("stage-1-band", "stage-4-band", "stage-2-adds", "stage-4-adds", "no-loss")
    for block in range(6):
        file = write_simulated_run(tmp_path, block, policy="mos") / SERIES_FILE
        series = json.loads(file.read_text())
        fall = 0.01 * (1 + 0.1 * block)
        for tenant, one in series["tenants"].items():
            one["utilization"] = [0.9] * EPOCHS
            one["requests_s"][42:] = [0.5 * rate for rate in one["requests_s"][42:]]
            for held in series["held"][tenant].values():
                held[:] = [value * (1 - fall * at) for at, value in enumerate(held)]
        file.write_text(json.dumps(series))
    results = results_of(SIMULATED, evidence_of(SIMULATED, tmp_path))
    assert {name: results[name].effect for name in names} == dict.fromkeys(names, "contradicted")
    assert results["stage-3-reclaims"].effect == "confirmed"


def test_a_caption_is_of_the_panels_that_are_drawn(tmp_path: Path) -> None:
    for error in (0.0, 0.3):
        write_simulated_run(tmp_path, 0, policy="mos-pp-learning", model_error=error)
    write_simulated_run(tmp_path, 0, policy="mos")
    entry = next(one for one in SIMULATED.figures if one.id == "error")
    drawn = draw(entry, evidence_of(SIMULATED, tmp_path), tmp_path / "figures", "mos")
    assert "Other runs:" in drawn.entry.caption
    assert "no learning" not in drawn.entry.caption


def test_table_3_has_the_papers_values_next_to_ours(cosperf: Evidence) -> None:
    made = {one.id: one for one in SIMULATED.tables(cosperf.table)}
    rows = made["table-3"].as_json()
    assert [row["workload"] for row in rows] == list("ABCDABCD")
    assert rows[0]["MOS, paper"] == "4,444 QPS"
    assert rows[3]["MOS++, paper"] == "1.9 GB/s"
    assert rows[1]["gain, paper"] == "15.7 %"
    assert rows[1]["gain, ours"].startswith("+23")
    assert len(made["stages"].rows) == 16


# ---- The object gateway (beyond the paper) ----


def test_a_controller_without_changes_is_shown_and_supports_nothing(gateway: Evidence) -> None:
    rows = gateway.table
    base, reweight = ("heterogeneity", "default"), ("heterogeneity", "reweight")
    idle = bar_of(rows, "B", "throughput", reweight, base)
    assert idle is not None
    assert (idle.inert, idle.ratio.n) == (True, 6)
    assert idle.ratio.value == pytest.approx(1)
    single = bar_of(rows[rows["block"] == 1], "A", "throughput", reweight, base)
    assert single is not None
    assert np.isnan(single.ratio.error).all()
    name = "mos-gateway-heterogeneity-b-throughput-dlr-over-reweight"
    assert "6 runs changed nothing" in str(judged(GATEWAY, gateway, name).note)


def test_claims_are_of_the_cells_that_were_run(gateway: Evidence) -> None:
    verdicts = {name: one.effect for name, one in results_of(GATEWAY, gateway).items()}
    assert verdicts["heterogeneity-a-throughput-dlr-over-default"] == "confirmed"
    assert verdicts["heterogeneity-a-latency-dlr-over-reweight"] == "confirmed"
    assert verdicts["calm-c-latency"] == "confirmed"
    assert verdicts["calm-d-latency"] == "not run"
    assert verdicts["interference-a-latency-dlr-over-default"] == "not run"
    assert all(claim.paper_value is None for claim in GATEWAY.claims)
