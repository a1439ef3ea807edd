"""Figures written by another process equal those written in this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from analysis.core import aside, style


def draw(folder: Path, name: str, *, by_lambda: bool = False) -> None:
    with style.figure(width=3, height=2) as (drawn, (axes,)), style.marked("simulated"):
        axes.bar([0, 1], [1.0, 2.0], label="a $10^3$")
        if by_lambda:
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0f}")
        style.legend(drawn, [axes])
        style.save(drawn, folder, name)


def ready(other: aside.Aside) -> None:
    """Wait until the other process has started or ended."""
    while not other._waits() and other._process.poll() is None:
        time.sleep(0.05)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_two_processes_write_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes figures that cannot be sent, and one lost with its process."""
    monkeypatch.setattr(aside, "processors", lambda: 2)
    here: list[str] = []
    written = aside.write

    def noted(job: aside.DrawingJob) -> None:
        here.append(job.png.stem)
        written(job)

    names = ("sent", "lambda", "lost", "late")
    for name in names:
        draw(tmp_path / "alone", name, by_lambda=name == "lambda")
    monkeypatch.setattr(aside, "write", noted)
    with style.shared():
        other: Any = style._ASIDE.get()
        ready(other)
        for name in names[:2]:
            draw(tmp_path / "shared", name, by_lambda=name == "lambda")
        style.settle()
        assert here == ["lambda"]
        assert (tmp_path / "shared" / "sent.pdf").is_file()

        def lose(job: aside.DrawingJob) -> bool:
            other._sent.append(job)
            other._process.kill()
            return True

        with monkeypatch.context() as patch:
            patch.setattr(other, "_send", lose)
            draw(tmp_path / "shared", "lost")
        assert not (tmp_path / "shared" / "lost.png").exists()
        style.settle()
        draw(tmp_path / "shared", "late")
    assert here == ["lambda", "lost", "late"]
    assert contents(tmp_path / "shared") == contents(tmp_path / "alone")
    assert len(contents(tmp_path / "alone")) == 8


def test_one_processor_has_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "processors", lambda: 1)
    with style.shared():
        assert style._ASIDE.get() is None
