"""`hotbed ursa` at the command line: plans, checks, malformed files in one sentence, exit codes."""

from __future__ import annotations

import csv
import json
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ursa_cli import Arrays, answer, arrays, refused, write

from controllers.ursa.io import load_instance
from schemas.errors import UserError
from testbed.agent.contract import AgentConfig
from testbed.agent.sense import observe
from testbed.stores.ceph import CephStore, Connection
from tests.hotbed.runner import run
from tests.testbed.stores.ceph.fake_rados import FakeRados


def test_plan_and_check(tmp_path, capsys):
    path, out = write(tmp_path / "a.npz"), tmp_path / "plans" / "plan.npz"
    summary = answer(capsys, "plan", path, "--method", "nearest", "--out", out)
    names = ("hot_before", "hot_after_swaps", "hot_after", "swaps", "moves")
    assert [summary[name] for name in names] == [1, 1, 0, 3, 1]
    assert (summary["method"], summary["still_hot"]) == ("nearest", [])
    assert summary["peak_rss_mib"] > 10
    seconds = summary["decision_seconds"]
    assert seconds["total"] == pytest.approx(
        sum(v for k, v in seconds.items() if k != "total" and "." not in k)
    )
    assert {"aggregate", "swap", "select", "place"} <= set(seconds)
    assert {"lower_bound", "gap", "cost"} <= set(summary)
    with np.load(out) as plan:
        assert set(plan.files) >= {
            *("swap_partition", "swap_replica", "move_partition", "move_replica", "move_to")
        }
        assert all(plan[name].dtype == np.int32 for name in plan.files if name != "cost")
        assert len(plan["swap_partition"]) == 3
    report = answer(capsys, "check", path, out)
    assert report["valid"] is True
    assert report["cost"] == pytest.approx(summary["cost"])
    assert all(report[name] == summary[name] for name in names)
    code, text, _ = run(capsys, "ursa", "plan", path, "--method", "nearest")
    assert (code, "hot nodes after swaps" in text) == (0, True)


def test_what_is_infeasible_is_reported(tmp_path, capsys):
    tight = np.array([6, 0, 0, 0, 0, 0], np.float32)
    path, out = write(tmp_path / "a.npz", capacity=tight), tmp_path / "plan.npz"
    summary = answer(capsys, "plan", path, "--method", "nearest", "--out", out, code=3)
    assert summary["hot_after"] == 6
    assert summary["still_hot"] == [0, 1, 2, 3, 4, 5]
    assert summary["gap"] is None
    code, text, _ = run(capsys, "ursa", "plan", path, "--method", "nearest")
    assert code == 3
    assert "stay hot: 0, 1, 2, 3, 4, 5" in text
    assert (summary["total_load"], summary["total_capacity"]) == (40, 6)
    assert summary["warnings"][0] in text
    assert answer(capsys, "check", path, out)["hot_after"] == 6
    # Unless the plan lists them, nodes that stay hot are violations.
    with np.load(out) as plan:
        silent = {name: plan[name] for name in plan.files if name != "still_hot"}
    np.savez(out, **silent)
    report = answer(capsys, "check", path, out, code=1)
    assert report["violations_total"] == 6
    assert "still hot" in report["violations"][0]


def _tables(folder: Path, suffix: str, **changes: Any) -> Path:
    """Write the instance of `arrays` as tables; nodes are a to f."""
    made = arrays()
    places = np.array(list("abcdef"))[made["replica_node"]].T
    partitions = {"partition": ["p", "q", "r", "s"]}
    partitions |= {f"node_{number}": column for number, column in enumerate(places, 1)}
    partitions |= {name: made[name] for name in ("primary_load", "secondary_load")} | changes
    nodes = {"node": list("abcdef"), "capacity": made["capacity"], "x": range(6), "y": [0] * 6}
    for name, table in (("placement", partitions), ("nodes", nodes)):
        frame = pd.DataFrame({head: column for head, column in table.items() if column is not None})
        file = folder / f"{name}{suffix}"
        frame.to_csv(file, index=False) if suffix == ".csv" else frame.to_parquet(file)
    return folder / f"placement{suffix}"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_plan_of_tables_names_what_to_do_in_csv_and_json(suffix, tmp_path, capsys):
    words = ("--method", "nearest", "--out")
    as_csv, as_json = tmp_path / "plan.csv", tmp_path / "plan.json"
    plain = answer(capsys, "plan", write(tmp_path / "a.npz"), *words, tmp_path / "plan.npz")
    path = _tables(tmp_path, suffix)
    named = answer(capsys, "plan", path, *words, as_json)
    assert named["cost"] == plain["cost"] == sum(row["cost"] for row in named["actions"])
    numbers = {letter: number for number, letter in enumerate("abcdef")}
    assert [numbers[row["to"]] for row in named["actions"]] == [r["to"] for r in plain["actions"]]
    move = {"action": "move", "partition": "q", "role": "secondary", "from": "a", "to": "b"}
    assert named["actions"][-1] == move | {"cost": 1}
    assert json.loads(as_json.read_text())["actions"] == named["actions"]
    assert answer(capsys, "check", path, tmp_path / "plan.npz")["valid"] is True
    for _ in range(2):
        code, text, _ = run(capsys, "ursa", "plan", path, *words, as_csv)
        assert code == 0
    rows = list(csv.DictReader(as_csv.open()))
    assert [row["partition"] for row in rows] == [row["partition"] for row in named["actions"]]
    assert "move secondary" not in text and "What to do" in text
    for other in (as_csv, as_json):
        other.write_text("{}")
        assert "not overwritten" in refused(capsys, "plan", path, *words, other)
    path.with_stem("nodes").unlink()
    assert f"nodes{suffix}" in refused(capsys, "plan", path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"primary_load": None}, "primary_load"),
        ({"node_2": ["b", "c", "d", "z"]}, "node_2 z is not in"),
        ({"partition": ["p", "q", "p", "s"]}, "partition p"),
        ({"primary_load": [1, 2, "x", 4]}, "primary_load[2] is nan"),
    ],
)
def test_a_malformed_table_gets_one_sentence(changes, says, tmp_path, capsys):
    assert says in refused(capsys, "plan", _tables(tmp_path, ".csv", **changes))


CEPH = Path(__file__).parents[1] / "data" / "ceph" / "16.2.15"


def _dumps(folder: Path) -> Path:
    """Write dumps of a real cluster; those of its PGs are a minute apart."""
    folder.mkdir()
    for name in ("osd_dump.json", "osd_tree.json", "pg_dump.json"):
        shutil.copy(CEPH / name, folder)
    later = json.loads((CEPH / "pg_dump.json").read_text())
    later["pg_map"] |= {"stamp": "2026-11-21T08:02:36.190803+0000"}
    later["pg_map"] |= {"pg_stats": json.loads((CEPH / "pg_dump_pgs.json").read_text())["pg_stats"]}
    (folder / "pg_dump_later.json").write_text(json.dumps(later))
    return folder


def test_a_plan_for_the_dumps_of_a_ceph(tmp_path, capsys):
    folder = _dumps(tmp_path / "ceph")
    rates = answer(capsys, "plan", folder, "--method", "nearest")
    assert (rates["load_unit"], rates["hot_before"], rates["hot_after"]) == ("operations/s", 1, 0)
    assert rates["total_load"] == pytest.approx(42 / 60, rel=0.01)
    assert [(row["from"], row["to"]) for row in rates["actions"]] == [("osd.0", "osd.2")]
    shutil.copy(CEPH / "pg_dump_pgs.json", folder / "pg_dump.json")
    (folder / "pg_dump_later.json").unlink()
    since = answer(capsys, "plan", folder, "--method", "nearest")
    assert (since["load_unit"], since["total_load"]) == ("operations", 42)
    assert [(row["from"], row["to"]) for row in since["actions"]] == [("osd.0", "osd.2")]
    tight = ("--method", "nearest", "-p", "capacity=10")
    assert answer(capsys, "plan", folder, *tight, code=3)["total_capacity"] == pytest.approx(21)
    _, text, _ = run(capsys, "ursa", "plan", folder, *tight)
    assert "the total load, 42 operations" in text.lower()


def test_dumps_that_are_missing_or_strange_get_one_sentence(tmp_path, capsys):
    folder = _dumps(tmp_path / "ceph")
    npz = write(tmp_path / "a.npz")
    assert "--testbed" in refused(capsys, "plan")
    assert "leave out --parameter" in refused(capsys, "plan", npz, "-p", "capacity=1")
    assert "capacty" in refused(capsys, "plan", folder, "-p", "capacty=1")
    for text in ("garbage", "[]", "{}"):
        (folder / "osd_tree.json").write_text(text)
        assert "no dumps of a Ceph" in refused(capsys, "plan", folder)
    (folder / "osd_tree.json").unlink()
    assert "ceph osd tree --format json" in refused(capsys, "plan", folder)


def test_a_plan_for_a_testbed_takes_what_its_agent_observes(tmp_path, capsys, monkeypatch):
    raw = FakeRados()

    def sleep(seconds: float) -> None:
        assert seconds == 10
        raw.reads = {pg: 100 for pg, up in raw.maps.items() if up[0] == 0}

    store = CephStore(Connection(raw), pools=["bench"])
    monkeypatch.setattr("testbed.agent.sense.open_store", lambda config, signal: store)
    monkeypatch.setattr("testbed.agent.sense.time", SimpleNamespace(sleep=sleep))
    config = AgentConfig("bed", "ceph", (), ("bench",))
    agent = SimpleNamespace(call=lambda verb, payload, timeout_s: observe(config, payload))
    monkeypatch.setattr("testbed.choose.choose_ready", lambda name: (None, name))
    monkeypatch.setattr("testbed.client.agent_client", lambda testbed: agent)
    made = answer(capsys, "plan", "--testbed", "bed", "--method", "nearest")
    assert (made["load_unit"], made["hot_before"]) == ("operations/s", 1)
    assert {(row["action"], row["from"]) for row in made["actions"]} == {("swap", "osd.0")}
    assert raw.closed


def test_no_file_is_overwritten(tmp_path, capsys):
    path = write(tmp_path / "a.npz")
    held = path.read_bytes()
    size = ("--nodes", 50, "--partitions", "1K")
    for words in (("plan", path, "--out", path), ("generate", *size, "--out", path)):
        assert run(capsys, "ursa", *words)[0] == 2
        assert path.read_bytes() == held


def ints(*values: Any) -> Any:
    return np.array(values, np.int32)


def floats(*values: Any) -> Any:
    return np.array(values, np.float32)


RACKS = {"node_xy": None, "rack": ints(*[0] * 6)}
BAD: dict[str, tuple[Arrays, str]] = {
    "missing": ({"primary_load": None, "capacity": None}, "lacks primary_load and capacity"),
    "no distance": ({"node_xy": None}, "no distances"),
    "both": ({"rack": ints(*[0] * 6), "rack_distance": floats([0])}, "give either node_xy"),
    "rack alone": (RACKS, "has rack; give either"),
    "one dimension": ({"replica_node": ints(*range(4))}, "two dimensions"),
    "no columns": ({"replica_node": np.empty((4, 0), np.int32)}, "0 columns"),
    "no nodes": ({"capacity": floats()}, "capacity is empty"),
    "loads of others": ({"primary_load": floats(1, 1, 1)}, "has 3 entries; allowed: 4"),
    "domains of others": ({"fault_domain": ints(*range(5))}, "has 5 entries; allowed: 6"),
    "points in space": ({"node_xy": np.zeros((6, 3), np.float32)}, "allowed: (6, 2)"),
    "a node twice": (
        {"replica_node": ints(*[[0, 1, 2], [3, 4, 3]] * 2)},
        "node 3 twice in partition 1",
    ),
    "an id too large": (
        {"replica_node": ints(*[[0, 1, 2], [3, 4, 6]] * 2)},
        "replica_node[1, 2] is 6; allowed: 0 to 5",
    ),
    "a negative domain": ({"fault_domain": ints(0, 1, 2, 3, 4, -5)}, "fault_domain[5] is -5"),
    "NaN": ({"primary_load": floats(1, np.nan, 1, 1)}, "primary_load[1] is nan"),
    "infinite": ({"capacity": floats(1, 1, 1, 1, 1, np.inf)}, "capacity[5] is inf"),
    "negative load": ({"secondary_load": floats(1, 1, 1, -1)}, "secondary_load[3] is -1.0"),
    "a point at NaN": ({"node_xy": floats(*[[np.nan] * 2] * 6)}, "node_xy[0, 0] is nan"),
    "broken ids": ({"replica_node": np.full((4, 3), 0.5)}, "type float64"),
    "ids as text": ({"fault_domain": np.array(list("abcdef"))}, "type <U1"),
    "ids beyond int32": ({"replica_node": np.full((4, 3), 2**40)}, "beyond int32"),
    "truth for loads": ({"primary_load": np.ones(4, np.bool_)}, "type bool"),
    "precise loads": ({"primary_load": np.full(4, 0.1)}, "store it as float32"),
    "large loads": ({"primary_load": np.full(4, 1e300)}, "float32"),
    "objects": ({"capacity": np.array([None] * 6)}, "cannot be read"),
    "a rack too many": (
        {"node_xy": None, "rack": ints(0, 1, 2, 0, 1, 2), "rack_distance": floats([0, 0], [0, 0])},
        "rack[2] is 2; allowed: 0 to 1",
    ),
    "an oblong table": (RACKS | {"rack_distance": floats([0, 0, 0], [0, 0, 0])}, "square"),
    "a negative distance": (RACKS | {"rack_distance": floats([-1])}, "rack_distance[0, 0] is -1.0"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_malformed_instance_gets_one_sentence(case, tmp_path, capsys):
    changes, says = BAD[case]
    assert says in refused(capsys, "plan", write(tmp_path / "bad.npz", **changes))


def _files(folder: Path) -> dict[str, Path]:
    whole = write(folder / "whole.npz").read_bytes()
    files = {
        "text": b"replica_node = 1\n",
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "damaged": whole[:300] + bytes(b ^ 0xFF for b in whole[300:340]) + whole[340:],
    }
    for name, data in files.items():
        (folder / f"{name}.npz").write_bytes(data)
    with zipfile.ZipFile(write(folder / "text in it.npz", capacity=None), "a") as archive:
        archive.writestr("capacity", "6, 12, 12")
    np.save(folder / "array.npy", np.zeros(3))
    paths = {name: folder / f"{name}.npz" for name in (*files, "text in it")}
    return paths | {"no file": folder / "no.npz", "folder": folder, "npy": folder / "array.npy"}


def test_what_is_no_archive_gets_one_sentence(tmp_path, capsys):
    good = write(tmp_path / "good.npz")
    for name, path in _files(tmp_path).items():
        for words in (["plan", path], ["check", path, path], ["check", good, path]):
            assert str(path) in refused(capsys, *words), name


def test_damaged_files_never_end_in_a_traceback(tmp_path):
    whole = write(tmp_path / "whole.npz").read_bytes()
    path = tmp_path / "damaged.npz"
    rng = np.random.Generator(np.random.PCG64(1))
    refused = 0
    for _ in range(400):
        data = np.frombuffer(whole, np.uint8).copy()
        data[rng.integers(len(data), size=rng.integers(1, 5))] = rng.integers(256)
        path.write_bytes(data.tobytes())
        try:
            load_instance(path)
        except UserError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1
    assert refused > 200


def _plan(**changes: Any) -> Arrays:
    """Return a valid plan for `arrays()`: three swaps, then move node 0's heaviest to node 5."""
    made = {
        "swap_partition": [0, 1, 2],
        "swap_replica": [1, 1, 1],
        "move_partition": [0],
        "move_replica": [0],
        "move_to": [5],
    } | changes
    return {k: np.array(v, np.int32) for k, v in made.items() if v is not None}


NO_MOVES: Arrays = {"move_partition": [], "move_replica": [], "move_to": []}
WRONG: dict[str, tuple[Arrays, str]] = {
    "partition out of range": ({"move_partition": [4]}, "move_partition[0] is 4"),
    "node out of range": ({"move_to": [6]}, "move_to[0] is 6"),
    "swap out of range": ({"swap_replica": [1, 1, 3]}, "swap_replica[2] is 3"),
    "primary already": ({"swap_replica": [1, 0, 1]}, "is primary already"),
    "onto its own node": ({"move_to": [0]}, "is on node 0 already"),
    "onto another replica": ({"move_to": [1]}, "C2"),
    "twice": ({"move_partition": [0, 0], "move_replica": [0, 0], "move_to": [5, 3]}, "moves twice"),
    "not enough": (NO_MOVES, "node 0 is still hot"),
    "swaps missing": ({"swap_partition": [], "swap_replica": []}, "node 0 is still hot"),
}


@pytest.mark.parametrize("case", WRONG)
def test_check_finds_what_is_wrong(case, tmp_path, capsys):
    path, out = write(tmp_path / "a.npz"), tmp_path / "plan.npz"
    np.savez(out, **_plan())
    assert answer(capsys, "check", path, out)["valid"] is True
    changes, says = WRONG[case]
    np.savez(out, **_plan(**changes))
    report = answer(capsys, "check", path, out, code=1)
    assert report["valid"] is False
    assert report["violations_total"] >= 1
    assert says in " ".join(report["violations"])


def test_generate_plan_check(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--nodes", "60", "--partitions", "6K", "--seed", "1", "--kind", "s2"]
    facts = answer(capsys, "generate", *words)
    path = Path(facts["path"])
    assert path == tmp_path / "ursa-s2-60-6K-1.npz"
    assert (facts["nodes"], facts["partitions"]) == (60, 6000)
    again = answer(capsys, "generate", *words, "--out", tmp_path / "again.npz")
    with np.load(path) as first, np.load(again["path"]) as second:
        assert all(np.array_equal(first[name], second[name]) for name in first.files)
    options = ["--method", "nearest", "--seed", "3", "--swap-success", "0.9", "--out"]
    for name in ("one.npz", "two.npz"):
        assert answer(capsys, "plan", path, *options, name)["hot_before"] == facts["hot"]
        assert answer(capsys, "check", path, name)["valid"] is True
    with np.load("one.npz") as first, np.load("two.npz") as second:
        assert all(np.array_equal(first[name], second[name]) for name in first.files)
    nowhere = ["plan", path, "--method", "nearest", "--out", "/dev/null/plan.npz"]
    assert "cannot be written" in refused(capsys, *nowhere)
