"""Find and read a campaign file."""

from __future__ import annotations

from pathlib import Path

from schemas.campaign import BurstCampaign, Campaign, PlannerCampaign, ReplayCampaign
from schemas.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
FILES = Path(__file__).resolve().parent / "files"

KINDS: dict[str, type[Campaign]] = {
    "planner": PlannerCampaign,
    "simulation": BurstCampaign,
    "system": ReplayCampaign,
}
"""Campaigns that have sessions of their own, by the key that says so."""


def campaign_names() -> list[str]:
    """Names of the campaigns that come with Hotbed."""
    return sorted(path.stem for path in FILES.glob("*.yaml"))


def find_campaign(name: str) -> Path:
    """Path of the campaign called `name`: one of ours, or a path to a YAML file.

    Raises:
        UserError: there is none; names those there are.
    """
    path = Path(name)
    if path.suffix in {".yaml", ".yml"} or "/" in name:
        if path.is_file():
            return path
        raise UserError(f"{name}: there is no such campaign file.")
    ours = FILES / f"{name}.yaml"
    if ours.is_file():
        return ours
    raise UserError(
        f"there is no campaign {name!r}; there are {', '.join(campaign_names())}, "
        "or give the path of a YAML file."
    )


def load_campaign(path: Path) -> Campaign:
    """Read a campaign file and hold it against the schema (not yet each cell: see `validate`).

    Raises:
        UserError: one sentence: file, key, what is wrong.
    """
    import yaml
    from pydantic import ValidationError

    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: a campaign is a mapping with name, ground, spec and grids.")
    try:
        kind = next((kind for key, kind in KINDS.items() if key in data), Campaign)
        return kind.model_validate(data)
    except ValidationError as error:
        raise UserError(_explain(error, path, data)) from error


def resolve(name: str, beside: Path) -> Path:
    """Path of a file that a campaign file names: beside it, or below the repository's root."""
    for base in (beside.resolve().parent, ROOT):
        candidate = base / name
        if candidate.is_file():
            return candidate
    raise UserError(
        f"{beside}: names {name!r}, which is neither beside the campaign file nor below {ROOT}."
    )


def _explain(error: object, path: Path, data: dict[str, object]) -> str:
    from pydantic import ValidationError

    assert isinstance(error, ValidationError)
    first = error.errors()[0]
    place = ".".join(_step(step, data) for step in first["loc"]) or "top level"
    message = str(first["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if first["type"] == "extra_forbidden":
        message = "unknown key"
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{path}: {place}: {message}{more}."


def _step(step: int | str, data: dict[str, object]) -> str:
    """A grid is named, not numbered."""
    grids = data.get("grids")
    if isinstance(step, int) and isinstance(grids, list) and step < len(grids):
        entry = grids[step]
        if isinstance(entry, dict) and "name" in entry:
            return f"grid {entry['name']}"
    return str(step)
