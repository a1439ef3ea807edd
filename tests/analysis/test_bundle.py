"""Bundles of made-up runs: they verify anywhere, and every change is named."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from synthetic import write_run

from analysis.bundle.build import Bundled, Inputs, build
from analysis.bundle.verify import Verification, shown_in, verify
from schemas.bundle import Author
from schemas.errors import UserError

BLOCKS = 3


def campaign(artifacts: Path) -> Path:
    """Write two blocks of figure 6b's cells, with traces of their machine."""
    folder = artifacts / "dlr-tiny"
    cells = []
    for block in range(BLOCKS):
        for controller, speed in (("default", 100.0), ("reweight", 98.0), ("dlr", 125.0)):
            for op in ("seq", "rand"):
                parameters = {"op": op, "scenario": "heterogeneity", "controller": controller}
                made = write_run(folder, parameters, block, speed + block)
                (made / "logs").mkdir()
                (made / "logs" / "cell.log").write_text("ssh user1@10.7.0.3: /ho" + "me/user1/x\n")
                job = {"notebook": "/srv/lab/hotbed/notebooks/x.ipynb", "parameters": parameters}
                (made / "job.json").write_text(json.dumps(job))
                grids = {"run_id": made.parent.name, "grids": ["fig6"], "figures": ["6a", "6b"]}
                cells.append(grids)
    left = write_run(folder, {"op": "seq", "scenario": "none", "controller": "default"}, 9, 1.0)
    (left / "core.bin").write_bytes(b"\0")
    (folder / "0" / ".attempt-1.partial").mkdir(parents=True)
    grid = {"name": "fig6", "figures": ["6a", "6b"], "vary": {"op": ["seq", "rand"]}}
    body = {"name": "dlr-tiny", "paper": "dlr", "ground": "local", "grids": [grid]}
    record = {"campaign": body, "cells": cells}
    (folder / "campaign.json").write_text(json.dumps(record))
    return folder


def inputs(tmp_path: Path, **about: Any) -> Inputs:
    lock = tmp_path / "lock"
    lock.write_text("numpy==2.0\n")
    return Inputs(
        files={"environment/requirements.lock": lock, "LICENSE": lock},
        hotbed_version="0.1.0",
        commit="0" * 40,
        authors=(Author(name="Hotbed maintainers"),),
        about=about,
    )


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Bundled:
    place = tmp_path_factory.mktemp("bundle")
    campaign(place / "artifacts")
    return build(place / "artifacts", "dlr-tiny", place / "tiny.zip", inputs(place))


def changed(bundled: Bundled, tmp_path: Path, change: Callable[[Path], None]) -> Verification:
    """Verify a copy that was changed and given matching hashes."""
    folder = tmp_path / "open"
    with zipfile.ZipFile(bundled.path) as opened:
        opened.extractall(folder)
    change(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["files"]:
        path = folder / entry["path"]
        if path.is_file():
            data = path.read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with zipfile.ZipFile(tmp_path / "changed.zip", "w") as opened:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                opened.write(path, path.relative_to(folder).as_posix())
    return verify(tmp_path / "changed.zip")


def failed(made: Verification) -> set[str]:
    return {check.name for check in made.checks if check.ok is False}


def run_file(folder: Path, name: str, where: str = '"controller": "dlr"') -> Path:
    return next(
        record.parent / name
        for record in sorted(folder.glob("artifacts/dlr-tiny/*/attempt-1/run.json"))
        if where in record.read_text()
    )


@pytest.mark.slow
def test_it_verifies_without_what_it_was_made_from(bundled: Bundled, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.zip"
    shutil.copy(bundled.path, moved)
    made = verify(moved)
    assert made.ok, made.differences
    assert made.sha256 == bundled.sha256
    assert bundled.derived.runs == 2 * 3 * BLOCKS
    assert not any("left" in check.detail for check in made.checks)


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(bundled: Bundled, tmp_path: Path) -> None:
    campaign(tmp_path / "moved")
    again = build(tmp_path / "moved", "dlr-tiny", tmp_path / "again.zip", inputs(tmp_path))
    assert again.sha256 == bundled.sha256


@pytest.mark.slow
def test_nothing_but_known_files_is_packed(bundled: Bundled) -> None:
    with zipfile.ZipFile(bundled.path) as opened:
        texts = {name: opened.read(name) for name in opened.namelist()}
    inner = {name.partition("attempt-1/")[2] for name in texts if "/attempt-1/" in name}
    known = {"run.json", "summary.json", "job.json", "samples.parquet", "journal.jsonl"}
    assert inner == known
    assert not any(b"/srv/lab" in text or b"10.7.0.3" in text for text in texts.values())
    assert bundled.manifest.left_out == {
        "attempts at cells that the campaign no longer holds": 1,
        "raw logs and executed notebooks (--with-logs packs them)": 2 * 3 * BLOCKS,
        "unfinished attempts": 1,
    }


@pytest.mark.slow
def test_the_appendix_numbers_every_claim(bundled: Bundled) -> None:
    with zipfile.ZipFile(bundled.path) as opened:
        text = opened.read("APPENDIX.md").decode()
        page = opened.read("appendix.html").decode()
    claims = bundled.derived.claims
    for index, claim in enumerate(claims, 1):
        assert f"| C{index} | {claim.figure} |" in text
        assert f'id="C{index}"' in page
        if claim.verdict not in ("reproduced", "not run"):
            assert f"**C{index}** ({claim.verdict})" in text
    untested = [f"C{i}" for i, claim in enumerate(claims, 1) if claim.verdict == "not run"]
    told = [line for line in text.splitlines() if line.endswith("`") and "** (not run): " in line]
    assert sorted(untested) == sorted(
        name for line in told for name in line[len("- **") : line.index("** ")].split(", ")
    )
    assert "hotbed rerun BUNDLE --figure 6a" in text
    assert "| dlr-tiny | fig6 | 6a, 6b | 18 | 18 | 18 | 9 min |" in text  # 18 runs of 30 s


@pytest.mark.slow
def test_metadata_are_of_one_source(bundled: Bundled) -> None:
    with zipfile.ZipFile(bundled.path) as opened:
        names = set(opened.namelist())
        crate = json.loads(opened.read("ro-crate-metadata.json"))
        trovi = json.loads(opened.read("trovi.json"))
        zenodo = json.loads(opened.read(".zenodo.json"))
        citation = yaml.safe_load(opened.read("CITATION.cff"))
    graph = {entity["@id"]: entity for entity in crate["@graph"]}
    root = graph["./"]
    assert graph["ro-crate-metadata.json"]["conformsTo"]["@id"].endswith("/ro/crate/1.1")
    for part in root["hasPart"]:
        assert part["@id"] in graph
        name = part["@id"]
        assert name in names or any(other.startswith(name) for other in names)
    assert root["name"] == zenodo["title"] == citation["title"]
    application = {entity["@id"]: entity for entity in trovi["@graph"]}["#ChameleonJupyterLab"]
    assert application["trovi_type"] == "jupyterhub"
    assert citation["date-released"] == zenodo["publication_date"] == "2026-01-01"


def _edit(file: Path, edit: Callable[[Any], None]) -> None:
    body = json.loads(file.read_text())
    edit(body)
    file.write_text(json.dumps(body))


def _claim(folder: Path) -> None:
    def better(claims: list[dict[str, Any]]) -> None:
        next(claim for claim in claims if claim["measured"] is not None)["measured"] *= 1.001

    _edit(folder / "artifacts/dlr-tiny/claims.json", better)


def _run(folder: Path) -> None:
    def faster(summary: dict[str, Any]) -> None:
        for op in (*summary["whole"], *summary["steady"]):
            op["throughput_mb_s"] *= 1.01
            op["iops"] *= 1.01

    _edit(run_file(folder, "summary.json"), faster)


def _figure(folder: Path) -> None:
    (file,) = (folder / "artifacts/dlr-tiny/figures/data").glob("dlr-fig6a.json")

    def taller(axes: list[dict[str, Any]]) -> None:
        axes[0]["patches"][0]["bar"][3] += 1

    _edit(file, taller)


def _picture(folder: Path) -> None:
    place = folder / "artifacts/dlr-tiny/figures"
    shutil.copy(place / "dlr-fig6b.png", place / "dlr-fig6a.png")


def _other_library(folder: Path) -> None:
    """Claim in the manifest that another library drew a changed picture; see `changed`."""
    _picture(folder)
    _edit(folder / "manifest.json", lambda body: body["libraries"].update(matplotlib="1.0"))


def _doubled(folder: Path) -> None:
    """Insert a better claim before the computed claim of the same name; a reader might take it."""

    def forge(claims: list[dict[str, Any]]) -> None:
        found = next(one for one in claims if one["measured"] is not None)
        better = dict(found) | {"measured": found["measured"] * 2, "verdict": "reproduced"}
        claims.insert(claims.index(found), better)

    _edit(folder / "artifacts/dlr-tiny/claims.json", forge)


def _said_twice(folder: Path) -> None:
    """Give a claim two values; most parsers take the last, and a few the first."""
    file = folder / "artifacts/dlr-tiny/claims.json"
    text = file.read_text()
    assert '"measured":' in text
    file.write_text(text.replace('"measured":', '"measured": 9.0, "measured":', 1))


def _drawn_twice(folder: Path) -> None:
    (file,) = (folder / "artifacts/dlr-tiny/figures/data").glob("dlr-fig6a.json")
    text = file.read_text()
    assert '"bar":' in text
    file.write_text(text.replace('"bar":', '"bar":[0,0,1,9],"bar":', 1))


def _swapped(folder: Path) -> None:
    """Swap the figures on the page."""
    page = folder / "artifacts/dlr-tiny/report.html"
    _, (first, second, *_) = shown_in(page.read_bytes())
    assert first != second
    text = page.read_bytes().replace(first, b"1st").replace(second, b"2nd")
    page.write_bytes(text.replace(b"1st", second).replace(b"2nd", first))


def _script(folder: Path) -> None:
    """Put a script on the page in place of the text from the runs."""
    script = "<script>alert(1)</script>"
    for record in folder.glob("artifacts/dlr-tiny/*/attempt-1/run.json"):
        _edit(record, lambda run: run["provenance"].update(calibration={"disk": script}))
    page = folder / "artifacts/dlr-tiny/report.html"
    text = page.read_text()
    assert "<dt>Calibration</dt><dd>{}</dd>" in text
    shown = f"<dt>Calibration</dt><dd>{{&#34;disk&#34;: &#34;{script}&#34;}}</dd>"
    page.write_text(text.replace("<dt>Calibration</dt><dd>{}</dd>", shown))


def _script_in_pdf(folder: Path) -> None:
    (file,) = (folder / "artifacts/dlr-tiny/figures").glob("dlr-fig6a.pdf")
    file.write_bytes(
        file.read_bytes() + b"\n9 0 obj\n<< /S /JavaScript /JS (app.alert(1)) >>\nendobj\n"
    )


def _moved_run(folder: Path) -> None:
    _edit(run_file(folder, "run.json"), lambda run: run.update(run_id="0" * 16))


def _appendix(folder: Path) -> None:
    file = folder / "APPENDIX.md"
    text = file.read_text()
    assert " not reproduced, " in text
    file.write_text(text.replace(" not reproduced, ", " reproduced too, "))


def _secret(folder: Path) -> None:
    run_file(folder, "job.json").write_text('{"at": "root@10.1.2.3"}\n')


def _lost(folder: Path) -> None:
    (folder / "artifacts/dlr-tiny/claims.json").write_text("{")


CHANGES: dict[str, tuple[tuple[Callable[[Path], None], ...], set[str], set[str]]] = {
    "results": (
        (_claim, _figure, _picture, _script, _script_in_pdf, _appendix, _secret),
        {"claims", "figures", "pictures", "report", "appendix and metadata", "private"},
        {
            *("claims.json", "data/dlr-fig6a.json", "report.html", "dlr-fig6a.pdf"),
            *("APPENDIX.md", "job.json"),
        },
    ),
    "runs": (
        (_run, _moved_run),
        {"claims", "figures", "pictures", "runs"},
        {"claims.json", "run.json"},
    ),
    "twice": (
        (_doubled, _drawn_twice, _swapped, _other_library),
        {"claims", "figures", "pictures", "report"},
        {"claims.json", "data/dlr-fig6a.json", "report.html"},
    ),
    "claim said twice": ((_said_twice,), {"claims"}, {"claims.json"}),
    "lost claims": ((_lost,), {"claims"}, {"claims.json"}),
}
"""Changes, with the checks that fail and the files that differ."""


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
def test_whoever_changes_it_and_its_hashes_is_found_out(
    what: str, bundled: Bundled, tmp_path: Path
) -> None:
    changes, wanted, files = CHANGES[what]

    def change(folder: Path) -> None:
        for one in changes:
            one(folder)

    made = changed(bundled, tmp_path, change)
    assert failed(made) >= wanted
    for file in files:
        assert any(one.file.endswith(file) for one in made.differences), file


def _declared(folder: Path, name: str, role: str) -> None:
    """State a role for a file; add the file to the manifest if it is missing."""

    def state(manifest: dict[str, Any]) -> None:
        kept = [entry for entry in manifest["files"] if entry["path"] != name]
        made = {"path": name, "sha256": "0" * 64, "bytes": 0, "role": role}
        manifest["files"] = [*kept, made]

    _edit(folder / "manifest.json", state)


@pytest.mark.slow
def test_nothing_passes_for_a_run_or_for_what_follows_from_one(
    bundled: Bundled, tmp_path: Path
) -> None:
    """Not a changed figure declared as a run's file, nor words on the page, nor files that no run
    yields."""
    report = "artifacts/dlr-tiny"

    def forge(folder: Path) -> None:
        _figure(folder)
        _declared(folder, f"{report}/figures/data/dlr-fig6a.json", "run")
        page = folder / report / "report.html"
        page.write_text(page.read_text().replace("not reproduced", "reproduced"))
        for name, role in ((f"{report}/best.csv", "derived"), ("CLAIMS.md", "metadata")):
            (folder / name).write_text("better\n")
            _declared(folder, name, role)

    made = changed(bundled, tmp_path, forge)
    assert failed(made) >= {"figures", "report", "places"}
    assert {one.file for one in made.differences} >= {
        *(f"{report}/figures/data/dlr-fig6a.json", f"{report}/report.html"),
        *(f"{report}/best.csv", "CLAIMS.md"),
    }


@pytest.mark.slow
def test_files_that_were_changed_added_or_lost_are_named(bundled: Bundled, tmp_path: Path) -> None:
    def copied(entries: Iterator[tuple[str, bytes]]) -> Path:
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as opened:
            for name, data in entries:
                opened.writestr(name, data)
        return tmp_path / "x.zip"

    def otherwise(source: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
        for name in source.namelist():
            if name != "LICENSE":
                data = source.read(name)
                yield name, data + b" " if name.endswith("requirements.lock") else data
        yield "extra.txt", b"x"

    with zipfile.ZipFile(bundled.path) as source:
        made = verify(copied(otherwise(source)))
    assert {(one.file, one.derived) for one in made.differences} >= {
        ("LICENSE", "missing"),
        ("extra.txt", "there"),
    }
    assert "environment/requirements.lock" in {one.file for one in made.differences}
    assert "files" in failed(made)


@pytest.mark.slow
def test_a_secret_stops_it(tmp_path: Path) -> None:
    folder = campaign(tmp_path / "artifacts")
    (journal,) = sorted(folder.glob("*/attempt-1/journal.jsonl"))[:1]
    journal.write_text('{}\n{"x": "export OS_PASS' + 'WORD=hunter22"}\n')
    with pytest.raises(UserError, match=r"journal\.jsonl:2: an OpenStack credential") as refused:
        build(tmp_path / "artifacts", "dlr-tiny", tmp_path / "x.zip", inputs(tmp_path))
    assert "hunter22" not in str(refused.value)
    assert not (tmp_path / "x.zip").exists()


def test_what_is_said_about_it_is_checked(tmp_path: Path) -> None:
    from analysis.bundle.build import about_of
    from analysis.bundle.derive import Derived

    derived = Derived("A paper", (), (), {}, tmp_path, 0)
    assert about_of(inputs(tmp_path, date="2026-01-01"), derived, ()).title.startswith("A paper")
    for wrong, said in (
        ({"date": "yesterday"}, "date"),
        ({"date": "2026-01-01", "authors": [{}]}, "authors.0"),
        ({"date": "2026-01-01", "titel": "x"}, "titel"),
        ({"date": "2026-02-30"}, "date: 2026-02-30 is no day"),
        ({"date": "2026-01-01", "license": "free for all"}, "license"),
    ):
        with pytest.raises(UserError, match=f"--about: {said}"):
            about_of(inputs(tmp_path, **wrong), derived, ())
    written = yaml.safe_load("{date: 2026-01-31, version: 1.0}")
    about = about_of(inputs(tmp_path, **written), derived, ())
    assert (about.date, about.version) == ("2026-01-31", "1.0")


def test_a_disk_that_is_full_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = campaign(tmp_path / "artifacts")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"No space left on device; .* set TMPDIR"):
        build(tmp_path / "artifacts", "dlr-tiny", tmp_path / "x.zip", inputs(tmp_path))
    assert folder.is_dir()
