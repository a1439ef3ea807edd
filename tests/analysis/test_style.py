"""An interval of few runs does not flatten the bars it stands on."""

from __future__ import annotations

from analysis import style


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
