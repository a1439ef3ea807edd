"""Names of machines and people: gone from a spec, and from what a failed run says."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
from synthetic import write_run

from analysis.bundle.redact import Redactor
from analysis.bundle.stage import Stage, private_names, stage_runs
from analysis.bundle.verify import verify
from campaigns.bundled_spec import LEFT_OUT, portable_spec
from hotbed.bundling import bundle
from schemas.errors import UserError
from testbed.spec import load_spec
from tests.campaigns.tiny_campaigns import TINY

NAMES = (b"tank", b"alice", b"gateway7", b"CHI-1")
GROUPS = [
    {"name": "head", "roles": ["admin", "mon", "mgr", "client"], "memory": "4GiB"},
    {"name": "osd", "count": 2, "roles": ["osd"], "memory": "4GiB", "disk": {"size": "40GiB"}},
]
INVENTORY: dict[str, Any] = {
    "hosts": [
        "tank1.cs.uni-nowhere.edu",
        {"address": "tank3.cs.uni-nowhere.edu", "user": "alice", "key": "~/.ssh/id_lab"},
        {"address": "192.168.7.1", "name": "osd0"},
    ],
    "user": "alice",
    "proxy_jump": "alice@gateway7:2222",
    "nodes": {"head": "tank1", "osd": ["osd0", "tank3"]},
    "signal": "iowait",
}


def spec_of(folder: Path, kind: str, options: dict[str, Any]) -> Path:
    body = {
        "name": "mine",
        "site": {"kind": kind, "options": options},
        "groups": GROUPS,
        "store": {"kind": "ceph", "pools": [{"name": "bench", "pg_num": 64}]},
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mine.yaml"
    file.write_text("# the machines of alice\n" + yaml.safe_dump(body))
    return file


def campaign(artifacts: Path, spec: Path) -> Path:
    folder = artifacts / "dlr-tiny"
    cells = []
    for controller, speed in (("default", 100.0), ("dlr", 125.0)):
        parameters = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
        made = write_run(folder, parameters, 0, speed, ground="inventory")
        cells.append({"run_id": made.parent.name, "grids": ["fig6"], "figures": ["6a"]})
    reason = "node osd1 (tank2.cs.uni-nowhere.edu) cannot be reached by ssh: alice@gateway7 closed"
    failed = write_run(folder, parameters, 0, 1.0, status="failed", ground="inventory", attempt=2)
    run = json.loads((failed / "run.json").read_text())
    (failed / "run.json").write_text(json.dumps(run | {"reason": reason}))
    (failed / "error.json").write_text(json.dumps({"error": f"{reason}; tank2 is gone"}))
    (failed / "cell.log").write_text("tank1 up, tank3 up, lease of CHI-123456; head, osd0, osd1\n")
    (folder / "ledger.jsonl").write_text(json.dumps({"reason": reason}) + "\n")
    body = {**TINY, "name": "dlr-tiny", "ground": "inventory", "spec": str(spec)}
    (folder / "campaign.json").write_text(json.dumps({"campaign": body, "cells": cells}))
    return folder


def contents(file: Path) -> dict[str, bytes]:
    """Files of an archive, Parquet files as what they say."""
    made = {}
    with zipfile.ZipFile(file) as opened:
        for name in opened.namelist():
            made[name] = opened.read(name)
            if name.endswith(".parquet"):
                made[name] += str(
                    pa.parquet.read_table(io.BytesIO(made[name])).to_pydict()
                ).encode()
    return made


def attempt_of(folder: Path, files: dict[str, str]) -> Path:
    """One attempt at one run, on machines that people gave names."""
    attempt = folder / "dlr-tiny" / "0af" / "attempt-1"
    attempt.mkdir(parents=True)
    run = {
        "ground": "inventory",
        "reason": "node osd1 (tank2.cs.uni-nowhere.edu) is gone",
        "provenance": {
            "hosts": {"osd0": {"hostname": "vault"}, "simulator": {}, "tank-7": {}},
            "calibration": {"groups": {"osd": 2}},
        },
    }
    for name, text in {"run.json": json.dumps(run), **files}.items():
        (attempt / name).write_text(text)
    return attempt


def staged(tmp_path: Path, files: dict[str, str]) -> tuple[Stage, dict[str, str]]:
    """What is staged of an attempt, by the last part of its name."""
    attempt = attempt_of(tmp_path / "artifacts", files)
    (tmp_path / "stage").mkdir()
    stage = Stage(tmp_path / "stage")
    redactor = Redactor(*private_names([attempt], {}))
    stage_runs(stage, {attempt.parents[1]: [attempt]}, redactor, lambda phase, share: None)
    return stage, {Path(name).name: file.read_text() for name, file in stage.files().items()}


def test_machines_are_told_by_what_runs_record(tmp_path: Path) -> None:
    _, names = private_names([attempt_of(tmp_path, {})], {})
    assert set(names) == {"vault", "simulator", "tank-7", "tank2.cs.uni-nowhere.edu", "tank2"}
    assert len(set(names.values())) == len(names)


def test_their_names_are_replaced_in_logs_and_stay_words_in_code(tmp_path: Path) -> None:
    text = "the simulator on tank-7, osd0 and vault"
    cells = [
        {"cell_type": "code", "source": [text, "at 10.0.0.5"], "outputs": [{"text": text}]},
        {"cell_type": "markdown", "source": text},
    ]
    given = {"cell.log": text, "notebook.ipynb": json.dumps({"cells": cells})}
    _, files = staged(tmp_path, given)
    said = files["cell.log"]
    assert not any(name in said for name in ("simulator", "tank-7", "vault"))
    assert "osd0" in said
    code, words = json.loads(files["notebook.ipynb"])["cells"]
    assert code["outputs"] == [{"text": said}]
    assert words["source"] == said
    tank = said.split(" on ")[1].split(",")[0]
    assert code["source"] == [text.replace("tank-7", tank), "at 192.0.2.1"]


@pytest.mark.parametrize("text", ["not json of a simulator", '{"cells": "simulator"}'])
def test_a_notebook_that_is_none_is_a_text(text: str, tmp_path: Path) -> None:
    _, files = staged(tmp_path, {"notebook.ipynb": text})
    assert "simulator" not in files["notebook.ipynb"]
    assert "host-" in files["notebook.ipynb"]


def test_programs_are_staged_as_they_are(tmp_path: Path) -> None:
    text = "simulator = vault\n"
    stage, files = staged(tmp_path, {"policy.py": text})
    assert files["policy.py"] == text
    stage.put("controllers/mine/policy.py", text.encode(), "source")
    with pytest.raises(UserError, match=r": controllers/mine/x\.py:2: a machine's name\. Take"):
        stage.put("controllers/mine/x.py", b"a = 1\nb = 'tank-7'\n", "source")
    assert "controllers/mine/x.py" not in stage.roles


def test_a_program_among_runs_that_names_a_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"attempt-1/policy\.py:1: a machine's name"):
        staged(tmp_path, {"policy.py": "at = 'tank2'\n"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["inventory", "chameleon"])
def test_no_name_leaves_with_a_spec_or_a_failed_run(kind: str, tmp_path: Path) -> None:
    options = INVENTORY | {"project": "CHI-123456"}  # of both kinds' options, whoever checks them
    spec = spec_of(tmp_path / "labs", kind, options)
    campaign(tmp_path / "artifacts", spec)
    made = bundle("dlr-tiny", tmp_path / "x.zip", artifacts=tmp_path / "artifacts")
    files = contents(made.path)
    for name in NAMES:
        assert [file for file, data in files.items() if name in data or name in file.encode()] == []
    log = next(data for name, data in files.items() if name.endswith("cell.log"))
    assert b"head, osd0, osd1" in log
    bundled = tmp_path / "mine.yaml"
    bundled.write_bytes(files["specs/mine.yaml"])
    assert load_spec(bundled).digest() == load_spec(spec).digest()
    assert load_spec(bundled).site.kind == kind


def no_texts() -> bytes:
    """A Parquet file whose texts are none."""
    parts = [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    columns = {"t_s": [0.0], "node": pa.Array.from_buffers(pa.string(), 1, parts)}
    columns |= {"metric": ["throughput_mb_s"], "value": [1.0]}
    sink = io.BytesIO()
    pa.parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


@pytest.mark.slow
def test_a_table_whose_texts_are_none_is_one_sentence(tmp_path: Path) -> None:
    """To who makes the bundle, and to who gets one."""
    spec = spec_of(tmp_path / "labs", "inventory", INVENTORY)
    folder = campaign(tmp_path / "artifacts", spec)
    made = bundle("dlr-tiny", tmp_path / "x.zip", artifacts=tmp_path / "artifacts")
    changed = tmp_path / "changed.zip"
    with zipfile.ZipFile(made.path) as old, zipfile.ZipFile(changed, "w") as new:
        for entry in old.infolist():
            bad = entry.filename.endswith("samples.parquet")
            new.writestr(entry, no_texts() if bad else old.read(entry))
    found = verify(changed)
    assert not found.ok
    told = [one for one in found.differences if one.bundled == "a table that cannot be read"]
    assert told
    assert all(one.file.endswith("samples.parquet") for one in told)
    sample = next(folder.glob("*/attempt-1/samples.parquet"))
    sample.write_bytes(no_texts())
    with pytest.raises(UserError, match=r"samples\.parquet: is no Parquet file that can be read"):
        bundle("dlr-tiny", tmp_path / "y.zip", artifacts=tmp_path / "artifacts")
    assert not (tmp_path / "y.zip").exists()


def test_options_that_name_nobody_stay(tmp_path: Path) -> None:
    options = {"site": "CHI@TACC", "node_type": "storage", "lease": {"hours": 24, "name": "alices"}}
    made = portable_spec(spec_of(tmp_path, "chameleon", options), tmp_path, {})
    assert made.text is not None
    assert made.text.startswith(LEFT_OUT)
    assert yaml.safe_load(made.text)["site"]["options"] == options | {"lease": {"hours": 24}}
    assert made.names == ("alices",)
    options["lease"] = {"hours": 24}
    assert portable_spec(spec_of(tmp_path, "chameleon", options), tmp_path, {}).text is None


def test_words_that_runs_are_told_by_stay(tmp_path: Path) -> None:
    hosts = ["dlr", "head", "osd1", "bench", "reads", "tank", "10.0.0.5", "root", "x7"]
    spec = spec_of(tmp_path, "inventory", {"hosts": hosts, "user": "heterogeneity"})
    known = {"vary": {"controller": ["dlr"]}, "fixed": {"scenario": "heterogeneity"}, "reads": 1}
    assert portable_spec(spec, tmp_path, known).names == ("tank",)


@pytest.mark.parametrize("there", [True, False])
def test_machines_of_an_inventory_are_told_too(there: bool, tmp_path: Path) -> None:
    if there:
        body = {"hosts": [{"address": "tank1.uni-nowhere.edu", "user": "alice"}]}
        (tmp_path / "hosts.yaml").write_text(yaml.safe_dump(body))
    spec = spec_of(tmp_path, "inventory", {"inventory": "hosts.yaml"})
    made = portable_spec(spec, tmp_path, {})
    assert made.names == (("tank1.uni-nowhere.edu", "tank1", "alice") if there else ())
    assert bool(made.notes) is not there
    assert not any("tank" in note for note in made.notes)


def test_machines_of_an_inventory_that_cannot_be_used_are_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"tank9": {"ansible_connection": "local"}, "tank1": {"ansible_user": "alice"}}
    listing = {"_meta": {"hostvars": variables}, "all": {"hosts": list(variables)}}
    monkeypatch.setattr("testbed.sites.inventory.hosts.ansible_listing", lambda _: listing)
    (tmp_path / "hosts.ini").touch()
    made = portable_spec(spec_of(tmp_path, "inventory", {"inventory": "hosts.ini"}), tmp_path, {})
    assert set(made.names) == {"tank1", "tank9", "alice"}
