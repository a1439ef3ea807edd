"""What a figure says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis import style


def texts_by_figure(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Fills with the texts of every figure that is saved from now on, by its name."""
    found: dict[str, list[str]] = {}
    save = style.save

    def saved(drawn: Any, folder: Path, name: str) -> Path:
        from matplotlib.text import Text

        path = save(drawn, folder, name)
        texts = [str(text.get_text()) for text in drawn.findobj(Text)]
        found.setdefault(name, []).extend(texts)
        return path

    monkeypatch.setattr(style, "save", saved)
    return found


def texts_of(figures: dict[str, list[str]]) -> set[str]:
    """Every text of all of them."""
    return {text for texts in figures.values() for text in texts}
