"""Reference: the results of one figure that stay, `artifacts/reference/<paper>/<figure>/`.

``reference.json``   a `Reference`
``claims.json``      the figure's claims, each a `schemas.claim.ClaimResult`
``summary.parquet``  a row a run: the fields of `schemas.run.Run`, ``commit``, and ``metrics``, its
                     `schemas.run.Summary`; mappings as JSON
``data.json``        data from the runs' files that figure and claims use, such as histograms:
                     campaign/run id -> name -> value; absent if they use summaries only
``<name>.png``       the figure, and ``<name>.json``, the numbers that it shows; absent for claims
                     without a figure
"""

from __future__ import annotations

from typing import Any, Final, Literal

from schemas.model import Model

REFERENCE_VERSION: Final = 1


class CodeDigest(Model):
    """Entry points of code, relative to the repository, and the digest of the files that they reach
    without comments and docstrings (`testbed.closure`)."""

    entries: tuple[str, ...]
    digest: str


class AttemptCounts(Model):
    """Attempts at a campaign's cells that support nothing."""

    spoiled: int
    failed: int
    interrupted: int


class Reference(Model):
    """Origin of the results of one figure.

    Attributes:
        paper: folder in `artifacts/reference`: the paper's short name, or ``dlr-sim``.
        campaigns: the campaigns of the runs, with all their attempts.
        commits: commits of the runs; all have the same code.
        code: code that made the runs, and code that computes figure and claims.
        machine: hardware facts, one mapping for each kind of machine; no names.
        ended_at: end of the last run.
        created: time of `hotbed reference add`.
    """

    schema_version: Literal[1] = REFERENCE_VERSION
    paper: str
    figure: str
    ground: str
    runs: int
    campaigns: dict[str, AttemptCounts]
    commands: tuple[str, ...]
    commits: tuple[str, ...]
    code: tuple[CodeDigest, ...]
    machine: tuple[dict[str, Any], ...]
    ended_at: str
    created: str
