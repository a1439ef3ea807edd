"""The comparison dlr-today: claims on made-up cells, the bound on a known network, and the figure
of simulated cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from synthetic import write_run

from analysis.core.claims import Evidence, evaluate_all
from analysis.core.load import load_campaign
from analysis.core.report import build
from analysis.papers.dlr.bound import bounds, stations_of
from analysis.papers.dlr.today import PARTS, percentile_s, tabulate
from campaigns.engine.campaign_file import find_campaign
from campaigns.engine.session import Request, run
from schemas.closed_network import Station, best_shares, throughput

SETTINGS: dict[str, dict[str, Any]] = {
    "lasting": {"scenario": "heterogeneity", "hot_nodes": 4},
    "six": {"scenario": "heterogeneity", "hot_nodes": 6},
    "moving-30": {"scenario": "interference", "hot_nodes": 4, "move_every_s": 30.0},
    "moving-90": {"scenario": "interference", "hot_nodes": 4, "move_every_s": 90.0},
}
GAINS = {
    "lasting": {"dlr": 1.0, "dlr-even": 1.2},
    "six": {"dlr": 1.0, "dlr-move": 1.1},
    "moving-30": {"dlr": 1.0, "dlr-short": 1.3, "dlr-fast": 1.2},
    "moving-90": {"dlr": 1.0, "dlr-fast": 0.9},
}


def write(
    campaign: Path, parameters: dict[str, Any], block: int, value: float, **more: Any
) -> Path:
    folder = write_run(campaign, parameters, block, value, with_samples=False, **more)
    record = json.loads((folder / "run.json").read_text()) | {"time_scale": 1.0}
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def effects(campaign: Path) -> dict[str, Any]:
    runs = [one for one in load_campaign(campaign).runs if PARTS[0].takes(one.run)]
    found = evaluate_all(PARTS[0].claims, Evidence(tabulate(runs), runs))
    return {claim.id.removeprefix("today-"): claim for claim in found}


def test_goals_have_the_direction_of_made_up_cells(tmp_path):
    for block in range(5):
        for setting, gains in GAINS.items():
            for name, gain in gains.items():
                parameters = {"op": "rand", "controller": name, **SETTINGS[setting]}
                noise = 1 + 0.01 * ((block + len(name)) % 3)
                write(tmp_path / "goals", parameters, block, 200 * gain * noise, ceph="18.2.7")
    found = effects(tmp_path / "goals")
    wanted = {
        "even-lasting": "confirmed",
        "move-six-hot": "confirmed",
        "fast-moving-30": "confirmed",
        "fast-over-short": "contradicted",
        "fast-moving-90": "contradicted",
    }
    assert {name: found[name].effect for name in wanted} == wanted
    assert all(not claim.stated and claim.paper_value is None for claim in found.values())


@pytest.mark.parametrize(("ceph", "release"), [("18.2.7", "reef"), ("20.2.4", "tentacle")])
def test_a_release_is_compared_with_itself_alone(tmp_path, ceph, release):
    for block in range(4):
        for name, speed in {"default": 100, "dlr": 150, "read-balancer": 151}.items():
            cell = {"op": "rand", "controller": name, **SETTINGS["lasting"]}
            write_run(tmp_path / "c", cell, block, speed + block, with_samples=False, ceph=ceph)
    found = effects(tmp_path / "c")
    other = {"reef": "tentacle", "tentacle": "reef"}[release]
    assert found[f"dlr-over-default-{release}"].effect == "confirmed"
    assert found[f"dlr-over-read-balancer-{release}"].effect == "contradicted"
    assert found[f"dlr-over-default-{other}"].effect == "not run"


def test_disks_are_found_again_in_their_reads(tmp_path):
    disks = [Station(0.0, 0.02)] * 4 + [Station(0.3, 0.02)] * 4
    shares = [0.2] * 4 + [0.05] * 4
    in_flight, think_s = 16.0, 0.05
    rate = throughput(disks, shares, in_flight, think_s)
    seconds, seen = 60.0, 15 / 16
    sums = [
        [rate * share * seconds, disk.queue(rate * share, seen) * seconds, seconds]
        for disk, share in zip(disks, shares, strict=True)
    ]
    found, found_think_s = stations_of(np.array(sums), in_flight)
    for disk, known in zip(found, disks, strict=True):
        assert (disk.delay_s, disk.service_s) == pytest.approx((known.delay_s, known.service_s))
    assert found_think_s == pytest.approx(think_s)

    steps: list[dict[str, Any]] = [{"header": True}]
    for number in range(4):
        latency = {str(osd): [one[0] / 6, one[1] / one[0]] for osd, one in enumerate(sums)}
        seen_there = {
            "t_s": 10.0 * (number + 1),
            "interval_s": 10.0,
            "latency": latency,
            "osds": [{"id": osd} for osd in range(8)],
            "pgs": [{"bytes": 1, "up": [osd, (osd + 3) % 8]} for osd in range(8)],
        }
        steps.append({"observation": seen_there, "actions": []})
    cell = {"op": "rand", "controller": "dlr-even", **SETTINGS["lasting"]}
    folder = write(tmp_path / "c", cell, 0, rate * 4 * 2**20 / 1e6)
    (folder / "journal.jsonl").write_text("".join(json.dumps(one) + "\n" for one in steps))
    both = bounds(load_campaign(tmp_path / "c").runs)
    assert both["free"] == pytest.approx(best_shares(disks, in_flight, think_s).rate)
    assert rate <= both["placed"] <= both["free"]


def test_the_percentile_counts_a_second_by_its_requests(tmp_path):
    cell = {"op": "rand", "controller": "dlr", **SETTINGS["lasting"]}
    folder = write(tmp_path / "c", cell, 0, 100.0)
    (folder / "logs").mkdir()
    lines = [f"0 {n} 16 {60 * n + 16} {60 * n} 1 1 0.{n} 0.1" for n in range(1, 5)]
    (folder / "logs" / "rados-bench-1.txt").write_text(
        "\n".join([*lines, "0 5 16 271 255 1 1 9.5 0.1", "0 6 16 271 255 1 0 - 0.1"])
    )
    (loaded,) = load_campaign(tmp_path / "c").runs
    assert percentile_s(loaded) == 9.5  # 15 of 255 requests
    (folder / "logs" / "rados-bench-1.txt").write_text(lines[0])
    (loaded,) = load_campaign(tmp_path / "c").runs
    assert percentile_s(loaded) is None


def test_figures_rank_simulated_cells(tmp_path):
    for name in ("dlr-today", "dlr-today-goals"):
        body = yaml.safe_load(find_campaign(name).read_text())
        for grid in body["grids"]:
            grid["repetitions"] = 2
            grid.pop("precision", None)
        wanted = {"dlr-today": "heterogeneity-rand", "dlr-today-goals": "lasting"}[name]
        body["grids"] = [one for one in body["grids"] if one["name"] == wanted]
        for grid in body["grids"]:
            grid["vary"] = {"controller": ["default", "dlr", "dlr-even", "jj"]}
            grid["fixed"]["duration_s"] = 60
        body["optional"] = ["jj"]
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(body))
        asked = Request(str(path), ground="sim", artifacts=tmp_path / "art")
        result = run(asked, in_process=True)
        assert result.ok
    made = build(tmp_path / "art", "dlr-today")
    there = {one.entry.id: one.path for one in made.figures if one.path is not None}
    assert set(there) == {"today-sim", "goals-sim"}
    claims = {claim.id: claim for claim in made.claims}
    assert claims["today-dlr-over-default-simulated"].effect == "confirmed"
    assert claims["today-even-of-bound"].effect != "not run"
    left_out = json.loads((tmp_path / "art" / "dlr-today-sim" / "campaign.json").read_text())
    assert "size-balancer" in left_out["left_out"]["jj"]
