"""Bundles of made-up runs: they verify anywhere, and every change is named."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import matplotlib.pyplot as plt
import pytest
import yaml
from PIL import Image
from synthetic import write_figure_6, write_run

from analysis.bundle.publish import Bundled, build
from analysis.bundle.verify import Verification, differences, look_alike, verify
from schemas.bundle import Sources
from schemas.errors import UserError
from tests.errors import raises

BLOCKS = 3
SPEEDS = {"default": 100.0, "reweight": 98.0, "dlr": 125.0}


def campaign(artifacts: Path) -> Path:
    """Write three blocks of figure 6's cells, with traces of their machine."""
    folder = artifacts / "dlr-tiny"
    log = "ssh user1@10.7.0.3: /ho" + "me/user1/x\n"
    notebook = "/srv/lab/hotbed/notebooks/x.ipynb"
    cells = write_figure_6(folder, SPEEDS, "seq", "rand", log=log, notebook=notebook)
    left = write_run(folder, {"op": "seq", "scenario": "none", "controller": "default"}, 9, 1.0)
    (left / "core.bin").write_bytes(b"\0")
    (folder / "0" / ".attempt-1.partial").mkdir(parents=True)
    grid = {"name": "fig6", "figures": ["6a", "6b"], "vary": {"op": ["seq", "rand"]}}
    body = {"name": "dlr-tiny", "paper": "dlr", "ground": "local", "grids": [grid]}
    (folder / "campaign.json").write_text(json.dumps({"campaign": body, "cells": cells}))
    return folder


def sources(_campaigns: object, scratch: Path) -> Sources:
    lock = scratch / "lock"
    lock.write_text("numpy==2.0\n")
    files = {"environment/requirements.lock": lock, "LICENSE": lock}
    return Sources("0.1.0", "0" * 40, ({"name": "Hotbed maintainers"},), files)


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Bundled:
    place = tmp_path_factory.mktemp("bundle")
    campaign(place / "artifacts")
    return build(place / "artifacts", "dlr-tiny", place / "tiny.zip", sources)


def texts(bundled: Bundled) -> dict[str, bytes]:
    with zipfile.ZipFile(bundled.path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(bundled, tmp_path):
    campaign(tmp_path / "moved")
    again = build(tmp_path / "moved", "dlr-tiny", tmp_path / "again.zip", sources)
    assert again.sha256 == bundled.sha256
    assert again.derived.runs == 2 * 3 * BLOCKS


@pytest.mark.slow
def test_known_files_only_are_packed_and_described(bundled):
    files = texts(bundled)
    inner = {name.partition("attempt-1/")[2] for name in files if "/attempt-1/" in name}
    known = {"run.json", "summary.json", "job.json", "samples.parquet", "journal.jsonl"}
    assert inner == known
    assert not any(b"/srv/lab" in text or b"10.7.0.3" in text for text in files.values())
    assert bundled.manifest.left_out == {
        "attempts at cells that the campaign no longer holds": 1,
        "raw logs and executed notebooks (--with-logs packs them)": 2 * 3 * BLOCKS,
        "unfinished attempts": 1,
    }
    text, page = files["APPENDIX.md"].decode(), files["appendix.html"].decode()
    for index, claim in enumerate(bundled.derived.claims, 1):
        assert f"| C{index} | {claim.figure} |" in text
        assert f'id="C{index}"' in page
    assert "hotbed rerun BUNDLE --figure 6a" in text
    assert "| dlr-tiny | fig6 | 6a, 6b | 18 | 18 | 18 | 9 min |" in text  # 18 runs of 30 s
    crate = json.loads(files["ro-crate-metadata.json"])
    graph = {entity["@id"]: entity for entity in crate["@graph"]}
    assert graph["ro-crate-metadata.json"]["conformsTo"]["@id"].endswith("/ro/crate/1.1")
    for part in graph["./"]["hasPart"]:
        assert part["@id"] in graph
        assert any(name.startswith(part["@id"]) for name in files)
    zenodo = json.loads(files[".zenodo.json"])
    citation = yaml.safe_load(files["CITATION.cff"])
    assert graph["./"]["name"] == zenodo["title"] == citation["title"]
    assert citation["date-released"] == zenodo["publication_date"] == "2026-01-01"


# ---- changes -------------------------------------------------------------------------------------


def changed(bundled: Bundled, tmp_path: Path, change: Callable[[Path], None]) -> Verification:
    """Verify a copy that was changed and given matching hashes."""
    folder = tmp_path / "open"
    with zipfile.ZipFile(bundled.path) as archive:
        archive.extractall(folder)
    change(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["files"]:
        path = folder / entry["path"]
        if path.is_file():
            data = path.read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with zipfile.ZipFile(tmp_path / "changed.zip", "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder).as_posix())
    return verify(tmp_path / "changed.zip")


def failed(made: Verification) -> set[str]:
    return {check.name for check in made.checks if check.ok is False}


REPORT = "artifacts/dlr-tiny"


def run_file(folder: Path, name: str) -> Path:
    return next(
        record.parent / name
        for record in sorted(folder.glob(f"{REPORT}/*/attempt-1/run.json"))
        if '"controller": "dlr"' in record.read_text()
    )


def edit(file: Path, change: Callable[[Any], None]) -> None:
    body = json.loads(file.read_text())
    change(body)
    file.write_text(json.dumps(body))


def replace(file: Path, old: str, new: str, count: int = -1) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, count))


def _claim(folder: Path) -> None:
    def better(claims: list[dict[str, Any]]) -> None:
        next(claim for claim in claims if claim["measured"] is not None)["measured"] *= 1.001

    edit(folder / REPORT / "claims.json", better)


def _run(folder: Path) -> None:
    def faster(summary: dict[str, Any]) -> None:
        for op in (*summary["whole"], *summary["steady"]):
            op["throughput_mb_s"] *= 1.01
            op["iops"] *= 1.01

    edit(run_file(folder, "summary.json"), faster)


def _moved_run(folder: Path) -> None:
    edit(run_file(folder, "run.json"), lambda run: run.update(run_id="0" * 16))


def _figure(folder: Path) -> None:
    def taller(axes: list[dict[str, Any]]) -> None:
        axes[0]["patches"][0]["bar"][3] += 1

    edit(folder / REPORT / "figures/data/dlr-fig6a.json", taller)


def _picture(folder: Path) -> None:
    place = folder / REPORT / "figures"
    shutil.copy(place / "dlr-fig6b.png", place / "dlr-fig6a.png")


def _other_library(folder: Path) -> None:
    """State in the manifest that another library drew the picture; see `changed`."""
    edit(folder / "manifest.json", lambda body: body["libraries"].update(matplotlib="1.0"))


def _doubled(folder: Path) -> None:
    """Insert a better claim before the computed claim of the same name; a reader might take it."""

    def forge(claims: list[dict[str, Any]]) -> None:
        found = next(one for one in claims if one["measured"] is not None)
        better = dict(found) | {"measured": found["measured"] * 2, "effect": "confirmed"}
        claims.insert(claims.index(found), better)

    edit(folder / REPORT / "claims.json", forge)
    (folder / "about.json").write_text("{")


def _given_twice(folder: Path) -> None:
    """Give a claim and a bar two values; most parsers take the last, and a few the first."""
    replace(folder / REPORT / "claims.json", '"measured":', '"measured": 9.0, "measured":', 1)
    data = folder / REPORT / "figures/data/dlr-fig6a.json"
    replace(data, '"bar":', '"bar":[0,0,1,9],"bar":', 1)


def _swapped(folder: Path) -> None:
    """Swap the figures on the page."""
    page = folder / REPORT / "report.html"
    first, second = (part.partition('"')[0] for part in page.read_text().split("base64,")[1:3])
    assert first != second
    text = page.read_text().replace(first, "1st").replace(second, "2nd")
    page.write_text(text.replace("1st", second).replace("2nd", first))


def _script(folder: Path) -> None:
    """Put a script on the page in place of the text from the runs."""
    script = "<script>alert(1)</script>"
    for record in folder.glob(f"{REPORT}/*/attempt-1/run.json"):
        edit(record, lambda run: run["provenance"].update(calibration={"disk": script}))
    replace(folder / REPORT / "report.html", "</body>", f"<p>disk {script}</p></body>")


def _script_in_pdf(folder: Path) -> None:
    file = folder / REPORT / "figures/dlr-fig6a.pdf"
    script = b"\n9 0 obj\n<< /S /JavaScript /JS (app.alert(1)) >>\nendobj\n"
    file.write_bytes(file.read_bytes() + script)


def _appendix(folder: Path) -> None:
    replace(folder / "APPENDIX.md", " contradicted, ", " contradicted not, ")


def _secret(folder: Path) -> None:
    run_file(folder, "job.json").write_text('{"at": "root@10.1.2.3"}\n')


def _stated(folder: Path, name: str, role: str) -> None:
    """State a role for a file; add the file to the manifest if it is missing."""

    def state(manifest: dict[str, Any]) -> None:
        kept = [entry for entry in manifest["files"] if entry["path"] != name]
        manifest["files"] = [*kept, {"path": name, "sha256": "0" * 64, "bytes": 0, "role": role}]

    edit(folder / "manifest.json", state)


def _passed_off(folder: Path) -> None:
    """Pass a changed figure off as a run's file, and files that no run yields as results."""
    _figure(folder)
    _stated(folder, f"{REPORT}/figures/data/dlr-fig6a.json", "run")
    for name, role in ((f"{REPORT}/b.csv", "derived"), ("C.md", "metadata"), ("x/y", "source")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("better\n")
        _stated(folder, name, role)


CHANGES: dict[str, tuple[tuple[Callable[[Path], None], ...], set[str], set[str]]] = {
    "results": (
        (_claim, _figure, _picture, _script, _script_in_pdf, _appendix, _secret),
        {"claims", "figures", "pictures", "report", "appendix and metadata", "private"},
        {
            *("claims.json", "data/dlr-fig6a.json", "report.html", "dlr-fig6a.pdf"),
            *("APPENDIX.md", "job.json", "dlr-fig6a.png"),
        },
    ),
    "runs and places": (
        (_run, _moved_run, _passed_off),
        {"claims", "figures", "pictures", "runs", "places"},
        {"claims.json", "run.json", "data/dlr-fig6a.json", "b.csv", "C.md", "x/y"},
    ),
    "forged": (
        (_doubled, _swapped, _picture, _other_library),
        {"claims", "pictures", "report", "appendix and metadata"},
        {"claims.json", "report.html", "about.json"},
    ),
    "twice": (
        (_given_twice,),
        {"claims", "figures"},
        {"claims.json", "data/dlr-fig6a.json"},
    ),
}
"""Changes, with the checks that fail and the files that differ."""


@pytest.mark.slow
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_with_fitting_hashes_is_named(what, bundled, tmp_path):
    changes, wanted, files = CHANGES[what]

    def change(folder: Path) -> None:
        for one in changes:
            one(folder)

    made = changed(bundled, tmp_path, change)
    assert failed(made) >= wanted
    for file in files:
        assert any(one.file.endswith(file) for one in made.differences), file


@pytest.mark.slow
def test_files_that_were_changed_added_or_lost_are_named(bundled, tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.bundle.verify._make_again", lambda *_: None)
    files = texts(bundled)
    files |= {"extra.txt": b"x", "environment/requirements.lock": b"numpy==3.0\n"}
    del files["LICENSE"]
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    made = verify(tmp_path / "x.zip")
    assert {(one.file, one.derived) for one in made.differences} >= {
        ("LICENSE", "missing"),
        ("extra.txt", "there"),
    }
    assert "environment/requirements.lock" in {one.file for one in made.differences}
    assert "files" in failed(made)


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_secret_stops_it(tmp_path):
    folder = campaign(tmp_path / "artifacts")
    (journal,) = sorted(folder.glob("*/attempt-1/journal.jsonl"))[:1]
    journal.write_text('{}\n{"x": "export OS_PASS' + 'WORD=hunter22"}\n')
    with raises(UserError, "journal.jsonl:2: an OpenStack credential") as refused:
        build(tmp_path / "artifacts", "dlr-tiny", tmp_path / "x.zip", sources)
    assert "hunter22" not in str(refused.value)
    assert not (tmp_path / "x.zip").exists()


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    campaign(tmp_path / "artifacts")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")

    monkeypatch.setattr(Path, "write_bytes", full)
    with raises(UserError, "No space left on device", do="TMPDIR"):
        build(tmp_path / "artifacts", "dlr-tiny", tmp_path / "x.zip", sources)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ('{"schema_version": 2, "hotbed_version": "9.1", "sealed": true}', "install Hotbed 9.1"),
        ('{"schema_version": 1e999, "hotbed_version": "1"}', "manifest.json"),
        ("[" * 100_000, "manifest.json"),
        ("[1]", "manifest.json"),
    ],
)
def test_a_manifest_that_is_none_or_of_a_later_format(tmp_path, manifest, said):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as made:
        made.writestr("manifest.json", manifest)
    with raises(UserError, "x.zip", said):
        verify(tmp_path / "x.zip")


# ---- comparison ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "places"),
    [
        ({"a": [1.0, 1e-17]}, {"a": [1.0 + 1e-12, 0.0]}, []),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.001]}, ["a[1]"]),
        ([[1e9, 0.5], [2e9, 0.6]], [[1e9, 0.5], [2e9, 0.9]], ["[1][1]"]),
        ([1e9, 0.0], [1e9, 1e-8], []),
        ([[1e9, 0.0], [2e9, 1e-8]], [[1e9, 0.0], [2e9, 0.0]], ["[1][1]"]),
        ([[1e9, 0.0], [2e9, 0.6]], [[1e9, 1e-10], [2e9, 0.6]], []),
        ({"bar": [0.0, 1e-8, 1.0, 1e9]}, {"bar": [0.0, 0.0, 1.0, 1e9]}, []),
        ({"bar": [1e-8, 0.0, 1.0, 1e9]}, {"bar": [0.0, 0.0, 1.0, 1e9]}, ["bar[0]"]),
        ({"bar": 1}, {"bar": 1}, []),
        ([float("inf"), 1.0], [float("inf"), 2.0], ["[1]"]),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, ["b", "c"]),
        ([1, 2], [1], [""]),
        ({"a": None, "b": True}, {"a": 0.0, "b": 1}, ["a", "b"]),
        ([1, [2]], [1, "2"], ["[1]"]),
        (float("nan"), float("nan"), []),
    ],
)
def test_numbers_are_compared_by_value(one, other, places):
    assert [found.where for found in differences("f", one, other)] == places


def test_a_picture_is_opened_as_png_only(tmp_path):
    """Another format of the image library might start a program, such as Ghostscript."""
    picture = Image.new("RGB", (8, 8), "red")
    picture.save(tmp_path / "one.png")
    picture.save(tmp_path / "bitmap.png", "BMP")
    assert look_alike(tmp_path / "one.png", tmp_path / "one.png")
    assert not look_alike(tmp_path / "one.png", tmp_path / "bitmap.png")


def bars(file: Path, heights: tuple[int, ...], **settings: Any) -> Path:
    """Draw a plot as a PNG file with these settings."""
    with plt.rc_context(cast(Any, settings)):
        figure, axes = plt.subplots(figsize=(6, 4))
        axes.bar(range(3), heights, yerr=[3, 3, 3])
        axes.set(title="Throughput under heterogeneity", ylabel="MB/s")
        axes.set_xticks(range(3), ["default", "reweight", "dlr"])
        figure.savefig(file, dpi=160)
        plt.close(figure)
    return file


@pytest.mark.slow
def test_pictures_of_another_library_look_alike(tmp_path):
    """Other letters and edges are ignored; different results are not."""
    one = bars(tmp_path / "one.png", (100, 98, 125))
    drawn: list[dict[str, Any]] = [
        {"text.hinting": "none"},
        {"font.family": "serif"},
        {"text.antialiased": False, "lines.antialiased": False},
    ]
    for settings in drawn:
        assert look_alike(one, bars(tmp_path / "other.png", (100, 98, 125), **settings))
    for heights in ((100, 98, 112), (100, 98, 100), (125, 98, 100)):
        assert not look_alike(one, bars(tmp_path / "other.png", heights))
    (tmp_path / "other.png").write_bytes(b"\x89PNG")
    assert not look_alike(one, tmp_path / "other.png")


# ---- every kind of campaign ----------------------------------------------------------------------
# Runs of a few figures with every kind of file; `tests.drawing` knows the files of all figures.


def ursa(artifacts: Path) -> str:
    from tests.papers.ursa_runs import write_all

    write_all(artifacts, blocks=1)
    return "ursa-full"


def twochoice(artifacts: Path) -> str:
    from tests.papers.twochoice_runs import write_all_bursts

    write_all_bursts(artifacts, blocks=1, variations=False)
    return "twochoice-full"


def pm(artifacts: Path) -> str:
    from tests.papers.prioritymeister_runs import all_runs, write

    for run in all_runs():
        if run.run.parameters["scenario"] in ("buckets", "table2"):
            write(run, artifacts)
    return "pm"


def mos(artifacts: Path) -> str:
    """Write measured and simulated runs for one report, each as its own part."""
    from tests.papers.mos_runs import write_course, write_simulated

    for block in range(2):
        write_course(artifacts / "mos-local", block)
    write_simulated(artifacts / "mos-sim", blocks=1)
    return "mos"


def compared(artifacts: Path) -> str:
    from test_bundle_rerun import BUNDLED, measured, ranked

    ranked(measured(artifacts / "compare-local", BUNDLED))
    return "compare-local"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("write", [ursa, twochoice, pm, mos, compared])
def test_every_kind_is_bundled_and_verified(write, tmp_path):
    name = write(tmp_path / "artifacts")
    made = build(tmp_path / "artifacts", name, tmp_path / "x.zip", sources)
    assert made.derived.shown
    assert made.derived.claims
    checked = verify(tmp_path / "x.zip")
    assert checked.ok, checked.differences[:5]
    done = {check.name for check in checked.checks if check.ok}
    assert {"files", "private", "runs", "claims", "figures", "pictures"} <= done
