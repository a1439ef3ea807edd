"""Logarithmic axes have labels without powers of ten."""

from __future__ import annotations

import pytest

from analysis.core import style


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
def test_ticks_are_plain_numbers_that_few_magnitudes_have_too(
    low: float, high: float, wanted: set[str]
) -> None:
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
