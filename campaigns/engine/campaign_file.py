"""Find and read a campaign file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from campaigns.papers.registry import schema_of
from schemas.campaign import Campaign
from schemas.errors import UserError, unknown
from schemas.mistakes import Place, mistake
from schemas.yaml_file import no_file, read_mapping

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).resolve().parents[1] / "files"

EXPERIMENT = ROOT / "notebooks" / "experiment.ipynb"
FORMER_EXPERIMENTS = frozenset(
    {"dlr_experiment.ipynb", "gateway_experiment.ipynb", "ursa_live.ipynb"}
)
"""Former notebooks, one a paper, that `EXPERIMENT` replaces. Older campaigns name them."""


def campaign_names() -> list[str]:
    """Return the names of the campaigns that come with Hotbed."""
    return sorted(path.stem for path in FILES.glob("*.yaml"))


def find_campaign(name: str) -> Path:
    """Return the path of the campaign `name`: one of Hotbed's, or the path of a YAML file.
    UserError: there is no such campaign; the message lists the known ones."""
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} or "/" in name:
        if path.is_file():
            return path
        raise no_file(path, FILES.glob("*.yaml"))
    ours = FILES / f"{name}.yaml"
    if ours.is_file():
        return ours
    raise unknown("campaign", name, campaign_names(), more=", or give the path of a YAML file")


def load_campaign(path: Path) -> Campaign:
    """Read a campaign file and check it against the schema (`validate` checks each cell).
    UserError: one sentence with the file, the key and the error."""
    from pydantic import ValidationError

    data = read_mapping(path, "a campaign is a mapping with name, ground, spec and grids")
    schema = schema_of(data, path)
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        found = mistake(error, schema)
        raise replace(found, place=_named(found.place, data)).error(path) from error


def resolve(name: str, campaign: Path) -> Path:
    """Return the path of a file that a campaign file names: next to it, or below Hotbed's root. A
    former name of the experiment notebook means that notebook. UserError: there is no such file."""
    candidates = [base / name for base in (campaign.resolve().parent, ROOT)]
    if Path(name).name in FORMER_EXPERIMENTS:
        candidates.append(EXPERIMENT)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UserError(
        f"names {name!r}, which is neither next to the campaign file nor below {ROOT}",
        where=campaign,
    )


def own_notebook(name: str) -> Path | None:
    """Return Hotbed's notebook for a file name or path, by its last part; None if it is not one of
    Hotbed's."""
    last = Path(name).name
    path = EXPERIMENT if last in FORMER_EXPERIMENTS else ROOT / "notebooks" / last
    return path if path.is_file() else None


def renamed(name: str, notebook: Path) -> str | None:
    """Return a sentence if `notebook` replaces the notebook that a campaign file names."""
    if not name or Path(name).name == notebook.name:
        return None
    return f"{name} is now notebooks/{notebook.name}, which runs instead"


def _named(place: Place, data: Mapping[str, object]) -> Place:
    """Return `place` with the grid's name instead of its number."""
    grids = data.get("grids")
    if place[:1] == ("grids",) and len(place) > 1 and isinstance(grids, list):
        entry = grids[int(place[1])]
        if isinstance(entry, dict) and "name" in entry:
            return (place[0], f"grid {entry['name']}", *place[2:])
    return place
