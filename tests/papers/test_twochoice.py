"""Two-choice randomized dynamic I/O scheduler: claims and figures of the paper on runs with known
values. Sections and figures are those of the paper."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from analysis.core import style
from analysis.core.claims import Claim, Evidence, evaluate
from analysis.core.evidence import values_of
from analysis.core.figures import Missing
from analysis.core.papers import paper
from analysis.core.report import build
from analysis.papers.twochoice.claims import BURST_CLAIMS
from analysis.papers.twochoice.figures import OBJECT_SERVERS, SIMULATED, burst_tables
from analysis.papers.twochoice.objects import EXPLAINED, OBJECT_CLAIMS, TABLE1
from analysis.papers.twochoice.runs import OBJECT_STANDARD, simulated
from schemas.claim import ClaimResult
from tests.analysis.synthetic import evidence_of
from tests.drawing import texts_by_figure
from tests.papers.twochoice_runs import (
    FEW,
    SECONDS,
    SHARES,
    UNCACHED,
    write_all_bursts,
    write_all_objects,
    write_bursts,
)

Results = Mapping[str, ClaimResult]


def results_of(claims: tuple[Claim, ...], evidence: Evidence) -> Results:
    """Return the results by claim, without the prefix of the part; with ``rados-`` before claims
    that object servers test too."""
    names = [re.sub("^twochoice-(objects-)?", "", claim.id) for claim in claims]
    also = ["rados-" if claim.store == "rados" else "" for claim in claims]
    found = {
        f"{prefix}{name}": evaluate(claim, evidence)
        for prefix, name, claim in zip(also, names, claims, strict=True)
    }
    assert len(found) == len(claims)
    return found


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    folder = tmp_path_factory.mktemp("artifacts")
    return evidence_of(write_all_bursts(folder, blocks=6, variations=False), SIMULATED)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return evidence_of(write_all_objects(tmp_path_factory.mktemp("artifacts")), OBJECT_SERVERS)


@pytest.fixture(scope="module")
def in_section_3(bursts: Evidence) -> Results:
    return results_of(BURST_CLAIMS, bursts)


@pytest.fixture(scope="module")
def in_section_6(objects: Evidence) -> Results:
    return results_of(OBJECT_CLAIMS, objects)


def test_figures_3_and_4_are_computed_from_the_same_bursts(in_section_3: Results) -> None:
    assert not any(claim.machines for claim in BURST_CLAIMS)  # their sizes count
    expected = {
        "random-worse": 1.8 / 1.5,
        "native-not-better": 1.35 * 1.01 / 1.5,
        "native-grows": 1.5 / 1.01,
        "preassign-better": 0.6 / 0.9,
        "better-than-fixed": 0.6 / 1.2,
        "better-than-fixed-alone": 1.1 / 1.2,
        "stragglers-slow": 1.5 / 1.2,
        "average-hides": 1.0,
        "native-hits": 1.0,
        "few-native-hits": 12.5 / 10_000,
        "strategies-better": 0.6 / 1.35,
        "collaborative-hits-less": 0.0,
        "generated-stragglers": 4.25 / 23.25,
        "stable": 1.0,
        "load-7": 64.0,
        "few-stragglers": 8.0,
        "fixed-even": 10.0,
        "random-most": 2.005,
        "native-herds": 1.8,
        "collaborative-herds": 22 / 18,
        "two-choice-avoids": 0.0,
        "remembered-better": UNCACHED,
        "oracle": 1.5,
        "prequal": 0.3,
        "learning": 0.6 / 0.7,
        "scale": 0.6 / 1.5,
    }
    for name, value in expected.items():
        assert in_section_3[name].measured == pytest.approx(value, rel=0.01), name
        assert in_section_3[name].n == 6, name
    assert {one.effect for one in in_section_3.values()} == {"confirmed"}


@pytest.mark.parametrize("series", ["random", "both", "fixed"])
def test_a_campaign_of_one_scheduler_supports_no_comparison(tmp_path: Path, series: str) -> None:
    for block in range(2):
        for share in (0.05, FEW, 0.5):
            write_bursts(tmp_path / "own", series, share, block, cell={"learn_rounds": 1})
            write_bursts(tmp_path / "own", series, share, block)
    evidence = evidence_of(tmp_path / "own", SIMULATED)
    found = results_of(BURST_CLAIMS, evidence)
    assert {found[name].effect for name in ("random-worse", "native-herds")} == {"not run"}
    drawn = [one.draw(evidence) for one in SIMULATED.figures if one.id in ("3", "4")]
    assert all(hasattr(one, "runs") for one in drawn)


def test_a_table_has_one_row_for_a_cell(tmp_path: Path) -> None:
    """A longer run replaces a shorter one; another prior or learning time is another cell."""
    for rounds in (5, 10):
        write_bursts(tmp_path, "fixed", 0.1, 0, cell={"rounds": rounds}, most=float(rounds))
    folder = write_bursts(tmp_path, "both", 0.1, 0)
    for more in ({"learn_rounds": 200}, {"prior_weight": 1e6}):
        write_bursts(tmp_path, "both", 0.1, 0, cell=more)
    older = json.loads((folder / "run.json").read_text())  # from before this parameter
    del older["parameters"]["prior_weight"]
    (folder / "run.json").write_text(json.dumps(older))
    rows = evidence_of(tmp_path, SIMULATED).table
    assert simulated(rows, "fixed")["most"].tolist() == [10.0]
    assert simulated(rows, "both")["learn_rounds"].tolist() == [20]
    assert values_of(simulated(rows, "both", learn_rounds=...), "learn_rounds") == [20, 200]
    assert values_of(simulated(rows, "both", prior_weight=...), "prior_weight") == [1.0, 1e6]


def test_every_number_of_table_1_is_a_claim(in_section_6: Results) -> None:
    stated = [value for row in TABLE1.values() for value in row.values()]
    found = [claim for claim in OBJECT_CLAIMS if claim.figure == "table1" and claim.sized]
    assert [claim.paper_value for claim in found] == stated
    for claim in found:
        one = in_section_6[claim.id.removeprefix("twochoice-objects-")]
        assert one.measured == pytest.approx(1.125 * claim.paper_value, rel=0.01)
        assert (one.effect, one.size) == ("confirmed", "not comparable")  # the disks are modelled


def test_figures_11_to_14_are_computed_within_blocks(in_section_6: Results) -> None:
    both, fixed = SECONDS["both"], SECONDS["fixed"]
    expected = {
        "finish": both / fixed,
        "finish-native": both / SECONDS["two-choice"],
        "fio": both / fixed,
        "balance-spread": 0.2,
        "oracle-table2": 1.2,
        "prequal-fio": 60 / 70,
        "calm": both / fixed,
        "read-5ms": 2.0,
        "write-10ms": 1.075 + 0.4 * 4,
        "remembered-better": 1 / UNCACHED,
        "payload-small": 1.0,
        "burden-even": 1.075,
        "even": 1 + 2 * SHARES["both"] * 1.05,
        "fixed-imbalance": 1 + 2 * SHARES["fixed"] * 1.05,
        "native-tail": 1.0,
        "probe": 1e3 * 0.9e-3 * 128**0.3 * 1.125,
        "probe-stable": 128**0.3,
        "rados-crush-fio": both / SECONDS["crush"],
        "rados-finish": both / fixed,
        "rados-oracle-fio": 1.2,
        "rados-dlr-fio": both / SECONDS["dlr"],
        "rados-dlr-alone-table2": SECONDS["dlr"] / SECONDS["crush"],
        "rados-single": both / fixed,
        "cache-spread-remembered": UNCACHED,
        "cache-spread-fixed": UNCACHED * 0.2,
        "cache-time-remembered": UNCACHED,
        "cache-finish-remembered": UNCACHED,
        "cache-finish-fixed": UNCACHED * both / fixed,
    }
    for name, value in expected.items():
        one = in_section_6[name]
        assert one.measured == pytest.approx(value, rel=0.01), name
        assert (one.n, one.ground) == (6, "local"), name
    # Probe and query are below the paper's bounds, create is above.
    verdicts = {
        **dict.fromkeys(("finish", "early", "balance-time", "table-short"), "confirmed"),
        **dict.fromkeys(("probe", "query-5ms"), "confirmed"),
        **dict.fromkeys(("create-5ms", "probe-stable", "calm"), "contradicted"),
    }
    assert {name: in_section_6[name].effect for name in verdicts} == verdicts


def test_figure_11_is_judged_where_it_is_least_certain() -> None:
    values = {8: (8.0, 8.1), 64: (4.0, 11.0)}
    rows = [
        OBJECT_STANDARD
        | {"experiment": "probe", "pending": 4, "schedulers": count, "ground": "local"}
        | {"probe_mean_s": 1e-3 * value}
        for count, found in values.items()
        for value in found
    ]
    found = results_of(OBJECT_CLAIMS[:1], Evidence(pd.DataFrame(rows), []))["probe"]
    assert (found.measured, found.effect) == (pytest.approx(7.5), "inconclusive")
    assert "at 64 schedulers" in str(found.note)


def test_a_result_that_differs_from_the_paper_is_explained(in_section_6: Results) -> None:
    assert set(EXPLAINED) <= set(in_section_6)
    differ = {
        name for name, one in in_section_6.items() if "best explanation: " in (one.note or "")
    }
    assert differ == {"probe-stable", "create-5ms", "remembered-better"}


def test_tables_have_every_scheduler(bursts: Evidence, objects: Evidence) -> None:
    (schedulers,) = burst_tables(bursts.table)
    assert len({row[0] for row in schedulers.rows}) == 10
    delays, jobs, rados = OBJECT_SERVERS.tables(objects.table)
    assert [row[0] for row in delays.rows] == ["1 MB", "2 MB", "4 MB"]
    assert delays.rows[0][-1] == "12.5, 11.7, 10.6, 10.3"
    assert (len(jobs.rows), len(rados.rows)) == (3 + 9 + 5 + 5, 3 * 7 + 5)
    assert {row[jobs.heads.index("read back wrong")] for row in jobs.rows} == {"0"}
    assert rados.rows[0][:4] == ("two copies", "fio", "CRUSH", "6")
    assert rados.rows[0][6] == "–"  # the place of its bytes is unknown
    for made in (schedulers, delays, jobs, rados):
        assert all(len(row) == len(made.heads) for row in made.rows)


@pytest.mark.slow
def test_every_figure_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all_bursts(tmp_path)
    write_all_objects(tmp_path)
    texts = texts_by_figure(monkeypatch)
    made = build(tmp_path, "twochoice")
    assert {one.entry.id for one in made.figures if one.path is None} == set()
    # Each run belongs to exactly one part.
    assert made.runs == len(list(tmp_path.glob("twochoice-*/*/attempt-1")))
    assert [one.entry.id for one in made.figures][:6] == ["3", "4", "11", "12", "13", "14"]
    assert any("preassign, cold" in text for text in texts["twochoice-fig3"])
    assert any("n = 6 runs" in text for text in texts["twochoice-fig3"])
    assert any("paper: about 60 servers" in text for text in texts["twochoice-fig4"])
    assert "stragglers" in texts["twochoice-fig4"]
    assert "Simulated" in made.path.read_text()
    claims = json.loads(made.claims_path.read_text())
    every = [claim.id for part in paper("twochoice").parts for claim in part.claims]
    assert [claim["id"] for claim in claims] == list(dict.fromkeys(every))
    tables = {path.stem for path in (tmp_path / "twochoice").glob("*.csv")}
    assert tables == {"schedulers", "table1", "objects", "rados"}


@pytest.mark.slow
def test_learning_is_drawn_at_any_straggler_ratio(tmp_path: Path) -> None:
    for share in (0.0, 0.05, 0.5):
        write_bursts(tmp_path / "own", "both", share, 0)
    (entry,) = (one for one in SIMULATED.figures if one.id == "learning")
    drawn = entry.draw(evidence_of(tmp_path / "own", SIMULATED))
    assert not isinstance(drawn, Missing)
    assert style.save(drawn, tmp_path, "learning").stat().st_size > 10_000
