"""A logarithmic axis is read without powers of ten."""

from __future__ import annotations

import pytest

from analysis import style


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (28.0, 64.0, {"30", "40", "60"}),
        (30.0, 700.0, {"30", "50", "100", "500"}),
        (0.5, 900.0, {"1", "3", "10", "300"}),
        (1.0, 1e6, {"1", "10", "1000", "100000"}),
    ],
)
def test_ticks_are_plain_numbers_that_few_magnitudes_have_too(
    low: float, high: float, wanted: set[str]
) -> None:
    with style.figure(1, 1, width=4.0, height=3.0) as (_, (axes,)):
        axes.plot([0, 1], [low, high])
        style.magnitudes(axes)
        axes.set_ylim(low, high)
        ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
        shown = set(axes.yaxis.get_major_formatter().format_ticks(ticks))
    assert wanted <= shown
    assert 3 <= len(shown) <= 12
    assert not any("$" in text or "e" in text for text in shown)
