"""RO-Crate 1.1, Trovi, Zenodo and citation metadata, all of one `schemas.bundle.About`.

RO-Crate: https://w3id.org/ro/crate/1.1. Trovi reads an RO-Crate from ``trovi.json`` whose
descriptor has the file's own name, and whose root has a short `disambiguatingDescription`,
`keywords` in one text, and an `actionApplication` that says where it is launched (its importer:
trovi/importing/views.py of https://github.com/ChameleonCloud/trovi). CITATION.cff: the Citation
File Format 1.2.0.
"""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from schemas.bundle import About, Author
from schemas.yaml_file import dump

CRATE = "ro-crate-metadata.json"
TROVI = "trovi.json"
ZENODO = ".zenodo.json"
CITATION = "CITATION.cff"

_CONTEXT = "https://w3id.org/ro/crate/1.1/context"
_SPEC = "https://w3id.org/ro/crate/1.1"
_TROVI_TITLE, _TROVI_DESCRIPTION = 140, 5000  # characters that its database has room for
_TROVI_TERMS = {
    "trovi_type": "https://www.chameleoncloud.org/terms#trovi_type",
    "trovi_arguments": "https://www.chameleoncloud.org/terms#trovi_arguments",
}


@dataclass(frozen=True)
class Made:
    """How a campaign's runs came about: times are ISO 8601."""

    campaign: str
    started_at: str
    ended_at: str
    made_of: Sequence[str]  # files of the bundle: campaign, spec


@dataclass(frozen=True)
class Contents:
    """What the metadata say of the files. `parts`: (path, what it is), folders with a slash at the
    end; `sizes`: of those files whose bytes are known by now."""

    parts: Sequence[tuple[str, str]]
    made: Sequence[Made]
    hotbed_version: str
    sizes: Mapping[str, int] = field(default_factory=dict)


def documents(about: About, contents: Contents) -> dict[str, bytes]:
    """The four files by name."""
    return {
        CRATE: _json(crate(about, contents)),
        TROVI: _json(trovi(about)),
        ZENODO: _json(zenodo(about)),
        CITATION: citation(about),
    }


def _json(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=2, ensure_ascii=False) + "\n").encode()


def crate(about: About, contents: Contents) -> dict[str, Any]:
    """``ro-crate-metadata.json``: what the files are, who made them and how."""
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
    """A file as an identifier, which is a relative URI: RFC 3986 has no spaces in those."""
    return quote(path, safe="/")


def trovi(about: About) -> dict[str, Any]:
    """``trovi.json``: the same root for Chameleon's Trovi, launched in its JupyterHub."""
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
    """``.zenodo.json``: a deposit's metadata."""
    creators = [
        {"name": f"{one.family_names}, {one.given_names}".strip(", ") or one.name}
        | ({"affiliation": one.affiliation} if one.affiliation else {})
        | ({"orcid": one.orcid} if one.orcid else {})
        for one in about.authors
    ]
    found: dict[str, Any] = {
        "title": about.title,
        "upload_type": "dataset",
        "description": html.escape(about.description, quote=False),  # it is shown as HTML
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
    """``CITATION.cff``."""
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
    if author.name:  # the format's groups have no affiliation
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


def _action(made: Made, version: str) -> dict[str, Any]:
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
