"""Style of figures, and the checks that detect a misleading figure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from matplotlib.axes import Axes

from analysis.core import style
from analysis.papers.mos.simulated import MOS, MOS_PP, STATIC
from tests.drawing import misleading, unlike


def rgb(controller: str) -> tuple[float, float, float]:
    """Return red, green and blue, each 0 to 1."""
    text = style.COLOURS[controller].lstrip("#")
    red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return red, green, blue


@pytest.mark.parametrize("pair", list(pairwise((STATIC, MOS, MOS_PP, STATIC))))
def test_divisions_of_microstores_are_told_apart(pair: tuple[str, str]) -> None:
    """Two blues at distance 0.8 (sum over red, green and blue) were too similar."""
    one, other = map(rgb, pair)
    least = 1.0 if MOS_PP in pair else 0.7
    assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) > least


def test_ordinary_intervals_set_the_axis() -> None:
    with style.figure() as (_, (axes,)):
        style.limit_intervals(axes, [1.0, 1.6], [(0, 1.0), (1, 2.4)])
        low, high = axes.get_ylim()
        assert low == 0
        assert 2.4 < high < 4
        assert not axes.texts


def test_an_enormous_interval_is_cut_and_its_end_is_told() -> None:
    with style.figure() as (_, (axes,)):
        style.limit_intervals(axes, [1.0, 1.6], [(0, 17.25), (1, 2.4)])
        assert axes.get_ylim()[1] < 5
        assert [text.get_text() for text in axes.texts] == ["to 17.2"]


def _misled(axes: Sequence[Axes], what: str) -> None:
    """Draw a figure with one misleading element."""
    left, right = axes
    left.plot([1, 2], [1, 2], "o-", label="one")
    if what != "an empty panel":
        right.plot([1, 2], [1, 2], "s-" if what == "another marker" else "o-", label="one")
    if what == "a mark that is not there":
        right.plot([], [], "X", label="broken")
    if what == "one mark on two axes":
        other = right.twinx()
        other.plot([1, 2], [2, 1], "o-")
    if what == "a legend upon data":
        right.legend()
    if what == "an interval without width":
        right.errorbar([1], [1], yerr=[[0.0], [0.0]])


@pytest.mark.parametrize(
    "what",
    [
        "an empty panel",
        "another marker",
        "a mark that is not there",
        "one mark on two axes",
        "an interval without width",
        "a legend upon data",
    ],
)
def test_a_figure_that_misleads_is_found(what: str) -> None:
    with style.figure(1, 2) as (drawn, axes):
        _misled(axes, what)
        assert len(misleading(drawn)) == 1


def test_a_caption_names_what_is_drawn() -> None:
    with style.figure(1, 2) as (drawn, axes):
        _misled(axes, "nothing")
        assert misleading(drawn) == []
        axes[0].set_title("(a) Left")
        axes[0].set_ylabel("Throughput (MB/s)")
        style.paper_marker(axes[0], 1, 2)
        assert unlike("(a) in MB/s. Diamond: the paper's.", drawn) == []
        assert unlike("(b) in IOPS. Squares: others.", drawn) == ["panel (b)", "square", "IOPS"]
