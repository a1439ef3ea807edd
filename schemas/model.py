"""Base of models that nobody changes and that refuse unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Strict, immutable model: a misspelt key is not silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)
