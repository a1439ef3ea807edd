"""An interval of few runs does not flatten the bars it stands on."""

from __future__ import annotations

from itertools import pairwise

import pytest

from analysis import style
from analysis.mos.scale_runs import MOS, MOS_PP, STATIC


def rgb(controller: str) -> tuple[float, float, float]:
    """Red, green and blue, each 0 to 1."""
    text = style.COLOURS[controller].lstrip("#")
    red, green, blue = (int(text[at : at + 2], 16) / 255 for at in (0, 2, 4))
    return red, green, blue


@pytest.mark.parametrize("pair", list(pairwise((STATIC, MOS, MOS_PP, STATIC))))
def test_divisions_of_microstores_are_told_apart(pair: tuple[str, str]) -> None:
    """Two blues, 0.8 apart, were not: by the sum over red, green and blue."""
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
