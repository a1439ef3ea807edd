"""Style of figures, and figures of another process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from analysis.core import aside, style


def test_ordinary_intervals_set_the_axis_and_an_enormous_one_is_cut_and_marked():
    with style.figure(1, 2) as (_, (axes, other)):
        style.limit_intervals(axes, [1.0, 1.6], [(0, 1.0), (1, 2.4)])
        low, high = axes.get_ylim()
        assert low == 0
        assert 2.4 < high < 4
        assert not axes.texts
        style.limit_intervals(other, [1.0, 1.6], [(0, 17.25), (1, 2.4)])
        assert other.get_ylim()[1] < 5
        assert [text.get_text() for text in other.texts] == ["to 17.2"]


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (28.0, 64.0, {"30", "40", "60"}),
        (30.0, 700.0, {"30", "50", "100", "500"}),
        (0.5, 900.0, {"1", "3", "10", "300"}),
        (1.0, 1e6, {"1", "10", "1000", "100000"}),
        (0.01, 900.0, {"0.01", "0.1", "1", "100"}),
        (0.0001, 0.5, {"0.0001", "0.003", "0.1"}),
    ],
)
def test_ticks_are_plain_numbers_that_few_magnitudes_have_too(low, high, wanted):
    with style.figure(1, 1, width=4.0, height=3.0) as (drawn, (axes,)):
        axes.plot([0, 1], [low, high])
        style.magnitudes(axes)
        axes.set_ylim(low, high)
        drawn.canvas.draw()
        labels = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        shown = {label.get_text() for tick, label in labels if low <= tick <= high}
    assert wanted <= shown
    assert 3 <= len(shown) <= 12
    assert not any("$" in text or "e" in text for text in shown)


def test_a_figure_without_an_estimate_has_no_legend():
    """Such as Ursa's figure 8 after one block in which no replica had to move."""
    with style.figure() as (drawn, axes):
        style.legend(drawn, axes)
    assert not drawn.legends


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


@pytest.mark.slow
def test_two_processes_write_what_one_does(tmp_path, monkeypatch):
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
