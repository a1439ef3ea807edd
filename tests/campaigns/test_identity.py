"""Run identity: it covers the code of a result, from the plan to the end of the cell."""

from __future__ import annotations

import ast
import json
import random
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from engine_process import QUICK_CELL
from tiny_campaigns import ONE_CELL

from campaigns.engine import session
from campaigns.engine.display import Progress
from campaigns.engine.job import CHANGED
from campaigns.engine.plan import Cell
from campaigns.engine.session import Request
from campaigns.engine.store import RunStore
from campaigns.papers.prioritymeister.kind import _remembered
from controllers import registry
from testbed import closure

ROOMS = ("campaigns", "controllers", "dataplane", "playbooks", "schemas", "testbed", "workloads")
CAMPAIGNS = (
    *("dlr-quick", "dlr-quick sim", "mos-gateway-quick", "ursa-quick", "ursa-live-quick"),
    *("mos-sim-quick", "mos-local", "pm-quick", "pm-local-quick", "twochoice-quick"),
    *("twochoice-local-quick", "twochoice-rados-quick"),
)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copy the code and compute identities from the copy."""
    root = tmp_path / "copy"
    for room in ROOMS:
        leave = shutil.ignore_patterns("__pycache__", "bin", "files" if room == "campaigns" else "")
        shutil.copytree(closure.ROOT / room, root / room, ignore=leave)
    monkeypatch.setattr(closure, "ROOT", root)
    monkeypatch.setattr(registry, "BUILT_IN", root / "controllers")
    closure.first.cache_clear()
    yield root
    closure.first.cache_clear()


def cells_of(named: str) -> tuple[Cell, ...]:
    """Return the cells of a campaign as another process would plan them."""
    closure.first.cache_clear()
    name, _, ground = named.partition(" ")
    request = Request(name, ground=ground or None)
    return session.prepare(request, need_ground=False).plan.cells


def ids(named: str) -> set[str]:
    return {cell.run_id for cell in cells_of(named)}


def reached(cell: Cell) -> frozenset[Path]:
    """Return the files of a cell's code, including its controller's files."""
    return _reached(closure.ROOT, tuple(each.entries for each in cell.code))


@cache
def _reached(_: Path, code: tuple[tuple[str, ...], ...]) -> frozenset[Path]:
    return frozenset(path for entries in code for path in closure.files(entries).values())


def constants(path: Path) -> list[tuple[int, int, int]]:
    """Return line, start and end (bytes) of each number in a file; of strings if it has none."""
    if path.suffix == ".go":
        code = [line.split("//")[0] for line in path.read_text().splitlines()]
        for pattern in (r"(?<![\w\".`'/-])\d+(?![\w.])", r'(?<=")\w+(?=")'):
            found = [
                (number, *match.span())
                for number, line in enumerate(code)
                if line.isascii()
                for match in re.finditer(pattern, line)
            ]
            if found:
                return found
        return []
    tree = ast.parse(path.read_bytes())
    left = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    left |= {id(part) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for part in n.values}
    plain = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and id(node) not in left
        and node.end_lineno == node.lineno
    ]
    numbers = [node for node in plain if type(node.value) in (int, float)]
    return [
        (node.lineno - 1, node.col_offset, node.end_col_offset or 0)
        for node in numbers or [node for node in plain if type(node.value) in (str, bool)]
    ]


def with_other_constant(path: Path, draw: random.Random) -> bytes:
    number, start, end = draw.choice(constants(path))
    lines = path.read_bytes().splitlines(keepends=True)
    line = lines[number]
    other = b"78" if line[start:end] == b"77" else b"77"
    lines[number] = line[:start] + other + line[end:]
    return b"".join(lines)


def with_other_words(path: Path) -> str:
    """Return a file's text with one docstring or comment changed, one added and one removed."""
    text = path.read_text()
    if path.suffix == ".go":
        return "// Other words.\n\n" + re.sub(r"(?m)^(\s*// .*)$", r"\1 indeed", text, count=1)
    changed = re.sub(r'"""\w', '"""Other words. X', text, count=1)
    assert changed != text
    return "# A comment.\n" + changed


def drawn(root: Path, draw: random.Random) -> list[tuple[str, Path]]:
    """Return six files of cell code, from several campaigns and both languages."""
    found: dict[Path, str] = {}
    for named in CAMPAIGNS:
        if len(found) >= 6:
            break
        files = reached(draw.choice(cells_of(named)))
        for suffix in (".py", ".go"):
            several = sorted(
                path
                for path in files - found.keys()
                if path.suffix == suffix and path.is_relative_to(root) and constants(path)
            )
            found |= {draw.choice(several): named} if several else {}
    return [(named, path) for path, named in found.items()][:6]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_constant_changes_the_id_and_a_sentence_does_not(copy):
    draw = random.Random(27)
    chosen = drawn(copy, draw)
    assert len(chosen) == 6
    assert {path.suffix for _, path in chosen} == {".py", ".go"}
    for named, path in chosen:
        cells, text = cells_of(named), path.read_text()
        others = {cell.run_id for cell in cells if path not in reached(cell)}
        path.write_text(with_other_words(path))
        assert ids(named) == {cell.run_id for cell in cells}, path
        path.write_bytes(with_other_constant(path, draw))
        assert ids(named) & {cell.run_id for cell in cells} == others, path
        path.write_text(text)


def test_the_agent_the_store_the_loop_and_the_steps_are_covered():
    (live,) = {cell.code[0].entries for cell in cells_of("dlr-quick")}
    found = set(closure.files(live))
    assert found >= {
        *(f"testbed/agent/{name}.py" for name in ("probe", "monitor", "sense", "recorder")),
        *("testbed/stores/ceph/store.py", "testbed/stores/ceph/perf.py", "controllers/loop.py"),
        *("campaigns/papers/dlr/cell.py", "campaigns/papers/dlr/live.py"),
        *("campaigns/papers/dlr/measure.py", "campaigns/grounds/live.py"),
        *(
            "controllers/decider.py",
            "testbed/sites/local/disk.py",
            "dataplane/cmd/queuedisk/main.go",
        ),
        "workloads/fio.py",
    }


@pytest.mark.parametrize("named", CAMPAIGNS)
def test_an_engine_changes_no_id(named):
    """Of the engine, only what writes and judges a cell's folder is part of a run's identity."""
    cell_code = {"__init__", "job", "judge", "provenance", "write_cell"}
    for cell in cells_of(named)[:1]:
        found = reached(cell)
        assert len(found) > 30
        engine = {path.stem for path in found if path.parent.name == "engine"}
        assert engine <= cell_code
        assert closure.ROOT / "campaigns" / "grounds" / "testbed.py" not in found
        assert not any(path.name == "kind.py" or "hotbed" in path.parts for path in found)


def test_what_workloads_had_alone_is_remembered_by_the_code(copy):
    store = RunStore(copy / "runs")
    before = _remembered(store)
    with (copy / "dataplane/nfsproxy/limits.go").open("a") as stream:
        stream.write("\nconst added = 1\n")
    closure.first.cache_clear()
    assert _remembered(store) != before


def test_a_dry_run_lists_every_cell(tmp_path, capsys):
    from hotbed.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["run", "twochoice-quick", "--dry-run", "--json", "--artifacts", str(tmp_path)])
    assert not ended.value.code
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    ids = [run["run_id"] for run in report["runs"]]
    assert ids == [cell.run_id for cell in cells_of("twochoice-quick")]
    assert len(set(ids)) == report["cells"]
    assert not any(run["done"] for run in report["runs"])


# Code changes while a campaign runs.
ADDED = "\nADDED = 1\n"


def two_cells(*controllers: str) -> list[dict[str, Any]]:
    vary = {"op": ["seq"], "controller": list(controllers)}
    return [{**ONE_CELL[0], "vary": vary, "fixed": {"scenario": "heterogeneity"}}]


def faulty(monkeypatch: pytest.MonkeyPatch, step: str, file: Path | str, text: str) -> None:
    fault = {"step": step, "how": "write", "file": str(file), "text": text}
    monkeypatch.setenv("HOTBED_FAKE_FAULT", json.dumps(fault))


def test_an_attempt_fails_whose_code_changed(copy, campaign_file, tmp_path, monkeypatch):
    monkeypatch.setenv("HOTBED_FAKE_CODE", str(copy))
    faulty(monkeypatch, "workload", copy / "testbed/agent/probe.py", ADDED)
    file = campaign_file(grids=two_cells("default", "dlr"))
    request = Request(str(file), artifacts=tmp_path / "artifacts")
    result = session.run(request, progress=Progress(), command=QUICK_CELL)
    (found,) = RunStore(tmp_path / "artifacts" / "tiny").runs()  # all other cells would fail too
    assert (found.status, result.ran, result.gave_up) == ("failed", 0, found.reason)
    assert found.reason is not None
    assert found.reason.startswith(CHANGED)
    assert "testbed/agent/probe.py" in found.reason
    # Run the same command in another process.
    monkeypatch.delenv("HOTBED_FAKE_FAULT")
    closure.first.cache_clear()
    assert session.run(request, progress=Progress(), command=QUICK_CELL).ok
    done = [run for run in RunStore(tmp_path / "artifacts" / "tiny").runs() if run.status == "done"]
    assert len(done) == 2
    assert found.run_id not in {run.run_id for run in done}


@pytest.mark.usefixtures("in_process")
def test_cells_of_a_controller_that_changed_fail_alone(campaign_file, tmp_path, monkeypatch):
    policy = tmp_path / "mine" / "policy.py"
    policy.parent.mkdir()
    built_in = registry.BUILT_IN / "dlr" / "policy.py"
    policy.write_text(built_in.read_text().replace('"dlr"', '"mine"'))
    path = campaign_file(grids=two_cells("default", "mine"), retries=0)
    faulty(monkeypatch, "controller", policy, ADDED)
    request = Request(str(path), artifacts=tmp_path / "artifacts", controllers_dir=policy.parent)
    result = session.run(request, progress=Progress(), in_process=True)
    runs = list(RunStore(tmp_path / "artifacts" / "tiny").runs())
    assert result.gave_up is None
    assert {(run.parameters["controller"], run.status) for run in runs} == {
        ("default", "done"),
        ("mine", "failed"),
    }


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("code", "status"), [("0" * 64, "failed"), (None, "done")])
def test_a_journal_of_other_code_fails_the_attempt(
    campaign_file, tmp_path, monkeypatch, code, status
):
    header = {"schema": 1, "header": True, "policy": "dlr", "parameters": {}, "seed": 1}
    header["needs"] = {"senses": [], "acts": []}
    header["code_hash"] = code or registry.code_hash(registry.find("dlr"))
    faulty(monkeypatch, "collect", "journal.jsonl", json.dumps(header) + "\n")
    path = campaign_file(grids=ONE_CELL, retries=0)
    request = Request(str(path), artifacts=tmp_path / "artifacts")
    session.run(request, progress=Progress(), in_process=True)
    (found,) = RunStore(tmp_path / "artifacts" / "tiny").runs()
    assert found.status == status
    assert (found.reason or CHANGED).startswith(CHANGED)
