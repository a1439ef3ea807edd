"""Records of a bundle: the manifest, and the one description behind all metadata.

A bundle is a ZIP archive (`hotbed bundle`). At its top::

    manifest.json                every other file with its SHA-256, and the origin of the bundle
    about.json                   an `About`: the one source of the metadata files
    APPENDIX.md, appendix.html   the claims, the check of each claim, and its time
    artifacts/<campaign>/        campaign.json, ledger.jsonl, <run id>/attempt-N/ (schemas/run.py)
    artifacts/<report>/          claims.json, report.html, tables, figures as PNG, PDF and data
    campaigns/, specs/, notebooks/, controllers/, models/, environment/   sources of the runs
    LICENSE, CITATION.cff, .zenodo.json, trovi.json, ro-crate-metadata.json
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from schemas.model import Model

MANIFEST = "manifest.json"
ABOUT = "about.json"
BUNDLE_VERSION = 1

CAMPAIGN_FILES = ("campaign.json", "comparison.json", "ledger.jsonl")
_SOURCES = ("specs", "notebooks", "controllers", "models", "profiles", "environment")

Role = Literal["run", "derived", "source", "metadata"]


def role_of(path: str, campaigns: Collection[str]) -> Role:
    """Return the role of a file by its place in a bundle of these campaigns."""
    match path.split("/"):
        case ["artifacts", campaign, name] if campaign in campaigns and name in CAMPAIGN_FILES:
            return "run"
        case ["artifacts", campaign, _, attempt, _, *_] if campaign in campaigns:
            return "run" if re.fullmatch(r"attempt-\d+", attempt) else "derived"
        case ["artifacts", *_]:
            return "derived"
        case ["LICENSE"]:
            return "source"
        case ["campaigns", name] if name in {f"{campaign}.yaml" for campaign in campaigns}:
            return "source"
        case [top, inner, *_] if top in _SOURCES and inner:
            return "source"
    return "metadata"


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
"""Name of a folder that cannot lead out of its own folder."""


class Entry(Model):
    """File of the archive. `role`: ``run`` was measured, ``derived`` was computed from runs,
    ``source`` made the runs, ``metadata`` is the rest."""

    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)
    role: Role


class Manifest(Model):
    """``manifest.json``.

    Attributes:
        report: name of the report, and of its folder below ``artifacts/``.
        campaigns: the folders of runs below ``artifacts/``.
        comparison: True if the report is one of `hotbed compare`.
        hotbed_version: version of the code that made the bundle.
        commit: commit of the same code; None outside a clone.
        libraries: versions of the libraries behind claims and figures.
        redacted: number of aliases, by kind, such as addresses.
        left_out: number of files that were not packed, by reason.
        notes: sentences on defects, such as a spec that has changed since the runs.
    """

    schema_version: int = Field(default=BUNDLE_VERSION, le=BUNDLE_VERSION)
    report: Name
    campaigns: tuple[Name, ...]
    comparison: bool = False
    hotbed_version: str
    commit: str | None
    libraries: dict[str, str]
    redacted: dict[str, int] = Field(default_factory=dict)
    left_out: dict[str, int] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: tuple[Entry, ...]


@dataclass
class Sources:
    """Files behind the runs of a bundle, and what is known about them.

    Attributes:
        version: version of the code.
        commit: its commit; None outside a clone.
        authors: fields of `Author` for each author of Hotbed, unless the user names others.
        files: name in the bundle -> file: campaign files, specs, notebooks, locks, license.
        hide: absolute folders of this machine, and the word that stands for each.
        notes: sentences for the appendix.
        names: names of machines, users and projects, which get aliases.
    """

    version: str
    commit: str | None
    authors: tuple[Mapping[str, Any], ...]
    files: dict[str, Path] = field(default_factory=dict)
    hide: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Author(Model):
    """Author of the artefact: a person by `family_names` and `given_names`, a group by `name`.
    There are no addresses: metadata are public. `affiliation`: institution of the author; `orcid`:
    the author's ORCID, such as 0000-0002-1825-0097."""

    name: str = ""
    family_names: str = ""
    given_names: str = ""
    affiliation: str = ""
    orcid: str | None = Field(default=None, pattern=r"^\d{4}-\d{4}-\d{4}-\d{3}[\dX]$")

    @field_validator("orcid")
    @classmethod
    def _no_slip(cls, orcid: str | None) -> str | None:
        """Require the check digit (ISO 7064, MOD 11-2), without which Zenodo refuses a deposit."""
        if orcid is not None:
            total = 0
            for digit in orcid.replace("-", "")[:-1]:
                total = (total + int(digit)) * 2
            right = "0123456789X"[(12 - total % 11) % 11]
            if orcid[-1] != right:
                raise ValueError(
                    f"{orcid} is nobody's: after {orcid[:-1]} comes {right}, so look for a slip"
                )
        return orcid

    @model_validator(mode="after")
    def _named(self) -> Author:
        if bool(self.name) == bool(self.family_names):
            raise ValueError("an author has either a name (a group) or family_names (a person)")
        return self

    @property
    def full_name(self) -> str:
        """``Given Family``, or the group's name."""
        return self.name or f"{self.given_names} {self.family_names}".strip()


class About(Model):
    """``about.json``: the content of ro-crate-metadata.json, trovi.json, .zenodo.json and
    CITATION.cff.

    Attributes:
        license: an identifier of the SPDX License List.
        date: ISO day; by default the day of the last run.
        repository: https address of the code.
        keywords: words to find the artefact by.
    """

    title: str = Field(min_length=1, max_length=250)
    short_description: str = Field(min_length=1, max_length=70)
    description: str = Field(min_length=1)
    authors: tuple[Author, ...] = Field(min_length=1)
    keywords: tuple[str, ...] = Field(("storage", "reproducibility", "testbed"), min_length=1)
    license: str = Field(default="Apache-2.0", pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")
    version: str = "1.0.0"
    date: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    repository: str | None = Field(default=None, pattern=r"^https://")
    doi: str | None = Field(
        default=None, pattern=r"^10\.\d{4,9}(\.\d+)?/[A-Za-z0-9:/_;.()\[\]\\-]+$"
    )

    @field_validator("date", "version", mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        """Accept 2026-01-31, a date in YAML, and 1.0, a number."""
        if isinstance(value, date):
            return value.isoformat()
        return str(value) if type(value) in (int, float) else value

    @field_validator("date")
    @classmethod
    def _of_a_calendar(cls, day: str) -> str:
        try:
            date.fromisoformat(day)
        except ValueError as error:
            raise ValueError(f"{day} is no day such as 2026-01-31") from error
        return day

    @field_validator("keywords")
    @classmethod
    def _plain(cls, keywords: tuple[str, ...]) -> tuple[str, ...]:
        if any("," in word or not word.strip() for word in keywords):
            raise ValueError("a keyword is not empty and has no comma")
        if len(set(keywords)) < len(keywords):
            raise ValueError("a keyword is there twice")
        return keywords

    @field_validator("license")
    @classmethod
    def _listed(cls, license_id: str) -> str:
        """Require an identifier of the SPDX License List, spelled as in the list: Zenodo and
        readers of CITATION.cff accept no others."""
        from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

        try:
            known = str(canonicalize_license_expression(license_id))
        except InvalidLicenseExpression:
            known = ""
        if known.startswith("LicenseRef-") or not known:
            raise ValueError(f"{license_id} is not on the SPDX License List (spdx.org/licenses)")
        if known != license_id:
            raise ValueError(
                f"{license_id} is not spelled as on the SPDX License List: {known} is meant"
            )
        return license_id
