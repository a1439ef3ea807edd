"""Descriptions of a bundle, written from nothing but its contents.

The appendix is the first page for a reviewer: the claims, the check of each claim, the time that
checking takes, and the claims that do not hold. One `schemas.bundle.About` gives the metadata:

- RO-Crate 1.1 (https://w3id.org/ro/crate/1.1);
- ``trovi.json``, an RO-Crate as Trovi imports it (trovi/importing/views.py of
  https://github.com/ChameleonCloud/trovi): its descriptor has the file's own name, its root a short
  `disambiguatingDescription`, `keywords` in one text, and an `actionApplication` to launch it;
- ``.zenodo.json``, and CITATION.cff in the Citation File Format 1.2.0.
"""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analysis.bundle.derive import Derived, FigureCells, Ran, duration, first_look
from analysis.core.claims import NOTE_SEPARATOR, SINGLE_RUN
from analysis.core.report import format_interval, format_value, render, shared_notes
from schemas.bundle import MANIFEST, About, Author, Manifest
from schemas.claim import ClaimResult
from schemas.yaml_file import dump

MARKDOWN = "APPENDIX.md"
HTML = "appendix.html"

HUMAN_MIN_PER_COMMAND = 1
"""Estimated minutes that a person spends per command: typing it and reading the result."""

_WHY = {
    "direction": "the direction holds, the size does not or cannot be vouched for on this ground",
    "inconclusive": "the interval includes no effect",
    "not reproduced": "the effect is the other way",
}
_WHY_SAME = {
    "inconclusive": "the interval lies neither within the tolerance nor outside it",
    "not reproduced": "the values are not the same: the interval lies outside the tolerance",
}
_COUNTED = {
    "reproduced": "reproduced",
    "direction": "in direction only",
    "inconclusive": "undecided",
    "not reproduced": "not reproduced",
    "not run": "not tested here",
}
_HOLDS = {
    "reproduced": "yes",
    "direction": "in direction",
    "inconclusive": "undecided",
    "not reproduced": "no",
    "not run": "not tested",
}


@dataclass(frozen=True)
class Claimed:
    """A claim with its number, as the appendix shows it."""

    number: str
    claim: ClaimResult
    expected: str
    measured: str
    command: str
    notes: tuple[str, ...]

    @property
    def holds(self) -> str:
        """The result in one or two words: yes, in direction, undecided, no, or not tested."""
        return _HOLDS[self.claim.verdict]

    @property
    def why(self) -> str:
        """Reason why a claim does not hold, or not as stated; empty for a claim that holds."""
        if self.claim.measured is not None and self.claim.ci95 is None:
            return SINGLE_RUN
        words = _WHY | (_WHY_SAME if self.claim.kind == "within" else {})
        return words.get(self.claim.verdict, "")


@dataclass(frozen=True)
class Untested:
    """Claims without runs in the bundle, for one reason, and the command that makes such runs."""

    numbers: tuple[str, ...]
    why: str
    command: str


def numbered(derived: Derived, campaigns: Sequence[Ran]) -> list[Claimed]:
    """Return the claims in the report's order, numbered from C1."""
    shared = shared_notes(derived.tested)
    return [
        Claimed(
            number=f"C{index}",
            claim=claim,
            expected=expected(claim),
            measured=_measured(claim),
            # An untested claim is often about cells that the bundle's campaigns do not have.
            command=command_of(
                claim.figure, derived, () if claim.verdict == "not run" else campaigns
            ),
            notes=tuple(
                note
                for note in (claim.note.split(NOTE_SEPARATOR) if claim.note else [])
                if note not in (*shared, SINGLE_RUN)
            ),
        )
        for index, claim in enumerate(derived.claims, 1)
    ]


def command_of(figure: str, derived: Derived, campaigns: Sequence[Ran]) -> str:
    """Return the command that makes the runs behind a claim again.

    Args:
        figure: the figure or figures that the claim names.
        derived: has the commands of the paper's catalogue.
        campaigns: campaigns of the bundle if its runs test the claim. The command then reruns one
            of them, as a whole if no cells belong to the figure alone. Empty if no run tests the
            claim: the command then comes from the catalogue.
    """
    names = [name.strip() for name in figure.split(",")]
    if campaigns:
        found = [_again(name, campaigns) for name in names]
        if None in found:
            found = [_rerun(one, campaigns) for one in campaigns]
    else:
        # A catalogue may list a claim's figure (7a) only as a whole (7).
        known = derived.commands
        found = [known.get(name) or known.get(name.rstrip("abcd")) for name in names]
    return "; ".join(dict.fromkeys(filter(None, found))) or "hotbed rerun BUNDLE"


def _again(figure: str, campaigns: Sequence[Ran]) -> str | None:
    for one in campaigns:
        name = one.option(figure)
        if name is not None:
            return f"{_rerun(one, campaigns)} --figure {name}"
    return None


def _rerun(one: Ran, campaigns: Sequence[Ran]) -> str:
    return "hotbed rerun BUNDLE" + (f" --campaign {one.campaign}" if len(campaigns) > 1 else "")


def expected(claim: ClaimResult) -> str:
    """Return the expectation of a claim, with its tolerance as the values that count."""
    none = claim.no_effect
    if claim.paper_value is None:
        if none is None:
            return "an effect as stated, with a 95 % interval that excludes no effect"
        return _beyond(none, claim)
    value = format_value(claim.paper_value, claim.unit)
    if none is not None and claim.size is False and claim.kind != "within":
        told = "" if claim.paper_value == none else f" ({value} in the paper)"
        return f"{_beyond(none, claim)}{told}"
    if claim.kind == "within":
        room = claim.tolerance * abs(claim.paper_value)
        if not room:
            return f"{value}, both ends of the 95 % interval too"
        return f"the whole 95 % interval in {_between(claim.paper_value, room, claim.unit)}"
    word = {"about": "", "at_least": "at least ", "at_most": "at most "}[claim.kind]
    if none is None or not claim.tolerance:
        return f"{word}{value}"
    room = claim.tolerance * abs(claim.paper_value - none)
    if claim.kind == "about":
        return f"{value} ({_between(claim.paper_value, room, claim.unit)})"
    # If an effect lowers a value, a larger effect is a lower value.
    further = claim.paper_value >= none
    room = -room if (claim.kind == "at_least") is further else room
    return f"{word}{value} ({format_value(claim.paper_value + room, claim.unit)} counts)"


def _beyond(none: float, claim: ClaimResult) -> str:
    side = "above" if claim.larger else "below"
    return f"{side} {format_value(none, claim.unit)}, the whole 95 % interval too"


def _between(value: float, room: float, unit: str) -> str:
    return format_interval((value - room, value + room), unit)


def untested(claims: Sequence[Claimed]) -> list[Untested]:
    """Return the claims without runs, grouped by reason and command."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in claims:
        if one.claim.verdict == "not run":
            why = one.claim.note or "no runs of it"
            found.setdefault((why, one.command), []).append(one.number)
    return [Untested(tuple(numbers), why, command) for (why, command), numbers in found.items()]


def _measured(claim: ClaimResult) -> str:
    if claim.measured is None:
        return "–"
    value = format_value(claim.measured, claim.unit)
    interval = "no interval" if claim.ci95 is None else format_interval(claim.ci95, claim.unit)
    return f"{value} ({interval}), n = {claim.n}"


def _spec_of(first: FigureCells | None, campaigns: Sequence[Ran]) -> str:
    """Return the bundle's testbed spec for the first look, or an empty text if it needs none."""
    spec = next((one.spec for one in campaigns if first and one.campaign == first.campaign), "")
    return f"specs/{Path(spec).name}" if spec else ""


def pages(
    about: About, manifest: Manifest, derived: Derived, campaigns: Sequence[Ran]
) -> dict[str, bytes]:
    """Return APPENDIX.md and appendix.html."""
    claims = numbered(derived, campaigns)
    first = first_look(campaigns, [one.figure for one in derived.tested if one.ci95 is not None])
    shown = {
        "about": about,
        "manifest": manifest,
        "title": derived.title,
        "report": f"artifacts/{derived.folder.name}/report.html",
        "compared": manifest.comparison,
        "figures": derived.figures,
        "campaigns": campaigns,
        "claims": claims,
        "tested": [one for one in claims if one.claim.verdict != "not run"],
        "not_tested": [one for one in claims if one.claim.verdict == "not run"],
        "shared_notes": shared_notes(derived.tested),
        "counts": [
            (sum(one.claim.verdict == verdict for one in claims), words)
            for verdict, words in _COUNTED.items()
        ],
        "fallen": [
            one
            for verdict in ("not reproduced", "inconclusive", "direction")
            for one in claims
            if one.claim.verdict == verdict
        ],
        "untested": untested(claims),
        "first": first,
        "spec": _spec_of(first, campaigns),
        "simulated": bool(campaigns) and all(one.ground == "sim" for one in campaigns),
        "machine_s": sum(one.machine_s for one in campaigns),
        "human_min": HUMAN_MIN_PER_COMMAND,
    }
    return {
        name: render(
            template,
            shown,
            duration=duration,
            sentence=lambda text: text[:1].upper() + text[1:],
            cell=lambda text: " ".join(str(text).split()).replace("|", "\\|"),
        ).encode()
        for name, template in ((MARKDOWN, "appendix.md.j2"), (HTML, "appendix.html.j2"))
    }


# ---- metadata ------------------------------------------------------------------------------------

CRATE = "ro-crate-metadata.json"
TROVI = "trovi.json"
ZENODO = ".zenodo.json"
CITATION = "CITATION.cff"

_CONTEXT = "https://w3id.org/ro/crate/1.1/context"
_SPEC = "https://w3id.org/ro/crate/1.1"
_TROVI_TITLE, _TROVI_DESCRIPTION = 140, 5000  # characters that its database accepts
_TROVI_TERMS = {
    "trovi_type": "https://www.chameleoncloud.org/terms#trovi_type",
    "trovi_arguments": "https://www.chameleoncloud.org/terms#trovi_arguments",
}


@dataclass(frozen=True)
class CampaignOrigin:
    """Origin of a campaign's runs; times are ISO 8601."""

    campaign: str
    started_at: str
    ended_at: str
    made_of: Sequence[str]  # files of the bundle: campaign, spec


@dataclass(frozen=True)
class Contents:
    """Files in the metadata. `parts`: (path, description), folders with a slash at the end;
    `sizes`: bytes of files with known size."""

    parts: Sequence[tuple[str, str]]
    made: Sequence[CampaignOrigin]
    hotbed_version: str
    sizes: Mapping[str, int] = field(default_factory=dict)


def metadata_files(about: About, contents: Contents) -> dict[str, bytes]:
    """Return the four files by name."""
    return {
        CRATE: _encoded(crate(about, contents)),
        TROVI: _encoded(trovi(about)),
        ZENODO: _encoded(zenodo(about)),
        CITATION: citation(about),
    }


def _encoded(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=2, ensure_ascii=False) + "\n").encode()


def crate(about: About, contents: Contents) -> dict[str, Any]:
    """Return ``ro-crate-metadata.json``: the files, their authors and their origin."""
    actions = [_action(made, contents.hotbed_version) for made in contents.made]
    root = _root(about) | {
        "hasPart": [{"@id": _id(path)} for path, _ in contents.parts],
        "mentions": [{"@id": action["@id"]} for action in actions],
    }
    parts = [
        {
            "@id": _id(path),
            "@type": "Dataset" if path.endswith("/") else "File",
            "name": what,
        }
        | ({} if path.endswith("/") else {"encodingFormat": _format(path)})
        | ({"contentSize": str(contents.sizes[path])} if path in contents.sizes else {})
        for path, what in contents.parts
    ]
    software = {
        "@id": "#hotbed",
        "@type": "SoftwareApplication",
        "name": "Hotbed",
        "version": contents.hotbed_version,
    } | ({"url": about.repository} if about.repository else {})
    return {
        "@context": _CONTEXT,
        "@graph": [
            _descriptor(CRATE),
            root,
            _license(about),
            *_people(about),
            *parts,
            software,
            *actions,
        ],
    }


def _id(path: str) -> str:
    """Return a path as a relative URI, which has no spaces (RFC 3986)."""
    return quote(path, safe="/")


def trovi(about: About) -> dict[str, Any]:
    """Return ``trovi.json``: the same root for Chameleon's Trovi, launched in its JupyterHub."""
    application = {
        "@id": "#ChameleonJupyterLab",
        "@type": "SoftwareApplication",
        "name": "Chameleon JupyterLab",
        "url": "https://jupyter.chameleoncloud.org/",
        "trovi_type": "jupyterhub",
        "trovi_arguments": "{}",
    }
    root = _root(about) | {
        "name": textwrap.shorten(about.title, _TROVI_TITLE, placeholder=" …"),
        "description": _cut(about.description, _TROVI_DESCRIPTION),
        "actionApplication": [{"@id": application["@id"]}],
    }
    return {
        "@context": [_CONTEXT, _TROVI_TERMS],
        "@graph": [
            _descriptor(TROVI),
            root,
            _license(about),
            *_people(about),
            application,
        ],
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 2].rstrip()} …"


def zenodo(about: About) -> dict[str, Any]:
    """Return ``.zenodo.json``: a deposit's metadata."""
    creators = [
        {"name": f"{one.family_names}, {one.given_names}".strip(", ") or one.name}
        | ({"affiliation": one.affiliation} if one.affiliation else {})
        | ({"orcid": one.orcid} if one.orcid else {})
        for one in about.authors
    ]
    found: dict[str, Any] = {
        "title": about.title,
        "upload_type": "dataset",
        "description": html.escape(about.description, quote=False),  # Zenodo shows it as HTML
        "creators": creators,
        "keywords": list(about.keywords),
        "license": about.license,
        "version": about.version,
        "publication_date": about.date,
        "access_right": "open",
    }
    if about.repository:
        found["related_identifiers"] = [
            {"identifier": about.repository, "relation": "isDerivedFrom"},
        ]
    return found


def citation(about: About) -> bytes:
    """Return ``CITATION.cff``."""
    body: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use this artefact, please cite it.",
        "title": about.title,
        "type": "dataset",
        "abstract": about.description,
        "version": about.version,
        "date-released": about.date,
        "license": about.license,
        "authors": [_cited(one) for one in about.authors],
        "keywords": list(about.keywords),
    }
    if about.repository:
        body["repository-code"] = about.repository
    if about.doi:
        body["doi"] = about.doi
    return dump(body).encode()


def _cited(author: Author) -> dict[str, str]:
    orcid = {"orcid": f"https://orcid.org/{author.orcid}"} if author.orcid else {}
    if author.name:  # the format's entities have no affiliation
        return {"name": author.name} | orcid
    found = {"family-names": author.family_names, "given-names": author.given_names}
    found["affiliation"] = author.affiliation
    return {key: text for key, text in found.items() if text} | orcid


def _descriptor(name: str) -> dict[str, Any]:
    return {
        "@id": name,
        "@type": "CreativeWork",
        "conformsTo": {"@id": _SPEC},
        "about": {"@id": "./"},
    }


def _root(about: About) -> dict[str, Any]:
    found: dict[str, Any] = {
        "@id": "./",
        "@type": "Dataset",
        "name": about.title,
        "disambiguatingDescription": about.short_description,
        "description": about.description,
        "keywords": ",".join(about.keywords),
        "datePublished": about.date,
        "version": about.version,
        "license": {"@id": _license_id(about)},
        "author": [{"@id": one["@id"]} for one in _people(about)],
    }
    if about.doi:
        found["identifier"] = f"https://doi.org/{about.doi}"
    return found


def _license_id(about: About) -> str:
    return f"https://spdx.org/licenses/{about.license}"


def _license(about: About) -> dict[str, Any]:
    return {
        "@id": _license_id(about),
        "@type": "CreativeWork",
        "name": about.license,
        "description": f"The license {about.license} of the SPDX License List",
    }


def _people(about: About) -> list[dict[str, Any]]:
    return [
        {
            "@id": f"https://orcid.org/{one.orcid}" if one.orcid else f"#author-{number}",
            "@type": "Organization" if one.name else "Person",
            "name": one.full_name,
        }
        | ({"affiliation": one.affiliation} if one.affiliation else {})
        for number, one in enumerate(about.authors, 1)
    ]


def _action(made: CampaignOrigin, version: str) -> dict[str, Any]:
    return {
        "@id": f"#run-{made.campaign}",
        "@type": "CreateAction",
        "name": f"The campaign {made.campaign}, run by Hotbed {version}",
        "startTime": made.started_at,
        "endTime": made.ended_at,
        "instrument": {"@id": "#hotbed"},
        "object": [{"@id": _id(path)} for path in made.made_of],
        "result": [{"@id": f"artifacts/{made.campaign}/"}],
    }


def _format(path: str) -> str:
    known = {
        "json": "application/json",
        "md": "text/markdown",
        "html": "text/html",
        "yaml": "application/yaml",
        "yml": "application/yaml",
        "cff": "application/yaml",
        "png": "image/png",
        "pdf": "application/pdf",
        "csv": "text/csv",
        "ipynb": "application/x-ipynb+json",
        "py": "text/x-python",
    }
    return known.get(path.rpartition(".")[2], "text/plain")


def described(
    about: About,
    manifest: Manifest,
    derived: Derived,
    campaigns: Sequence[Ran],
    files: Mapping[str, Path],
) -> dict[str, bytes]:
    """Return the appendix and the metadata, written from nothing but the contents of the bundle."""
    bare = manifest.model_copy(update={"files": ()})
    written = pages(about, bare, derived, campaigns)
    parts = _parts(manifest, derived, files)
    sizes = {path: files[path].stat().st_size for path, _ in parts if path in files}
    contents = Contents(
        parts=parts,
        made=[
            CampaignOrigin(one.campaign, one.started_at, one.ended_at, _made_of(one, files))
            for one in campaigns
        ],
        hotbed_version=manifest.hotbed_version,
        sizes=sizes | {name: len(text) for name, text in written.items()},
    )
    return written | metadata_files(about, contents)


def _made_of(one: Ran, files: Mapping[str, Path]) -> list[str]:
    wanted = [f"campaigns/{one.campaign}.yaml", f"specs/{Path(one.spec).name}"]
    return [name for name in wanted if name in files]


def _parts(
    manifest: Manifest, derived: Derived, files: Mapping[str, Path]
) -> list[tuple[str, str]]:
    """Return the parts of the crate: files that people open, and the folders of the other files."""
    folder = f"artifacts/{derived.folder.name}"
    parts = [
        (MARKDOWN, "Artifact appendix"),
        (HTML, "Artifact appendix as a page"),
        (MANIFEST, "Every file with its SHA-256"),
    ]
    named = {
        f"{folder}/report.html": "Report: figures, claims and runs",
        f"{folder}/comparison.md": "Comparison of the controllers",
        f"{folder}/claims.json": "Claims with their verdicts",
        "environment/requirements.lock": "Locked Python environment",
        "LICENSE": "License",
    }
    parts += [(path, what) for path, what in named.items() if path in files]
    for figure in derived.figures:
        for place in ("/figures/", "/"):
            path = f"{folder}{place}{figure.name}.png"
            if figure.name and path in files:
                parts.append((path, f"Figure {figure.id}: {figure.title}"))
    parts += [(f"artifacts/{one}/", f"Runs of the campaign {one}") for one in manifest.campaigns]
    tops = ("campaigns/", "specs/", "notebooks/", "controllers/", "models/")
    parts += [
        (path, "What the runs were made by") for path in sorted(files) if path.startswith(tops)
    ]
    return parts
