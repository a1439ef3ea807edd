"""A campaign file: what is varied, how often, on which ground, by which notebook."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Strict(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Grid(Strict):
    """A named set of cells: the product of `vary` over `fixed`; one randomized block holds every
    cell of the grid once. `figures` names what it feeds."""

    name: str
    figures: tuple[str, ...]
    vary: dict[str, list[Any]] = Field(min_length=1)
    fixed: dict[str, Any] = Field(default_factory=dict)
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    repetitions: int = Field(default=3, ge=1, le=1000)


class Campaign(Strict):
    """One YAML file under campaigns/files/, named <short name>-<profile>."""

    name: str
    paper: str
    profile: Literal["quick", "paper", "full"]
    ground: Literal["local", "sim", "chameleon", "inventory", "fake"]
    spec: str
    notebook: str
    time_scale: float = Field(gt=0, le=10)
    seed: int = 1
    retries: int = Field(default=1, ge=0, le=10)
    spoiled_retries: int = Field(default=2, ge=0, le=10)
    parameters: dict[str, Any] = Field(default_factory=dict)
    grids: list[Grid] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Campaign:
        names = [grid.name for grid in self.grids]
        if len(set(names)) != len(names):
            raise ValueError("two grids have the same name")
        return self
