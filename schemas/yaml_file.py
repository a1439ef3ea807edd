"""YAML files that people write: what is wrong with one is a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.errors import UserError

if TYPE_CHECKING:
    from pydantic import ValidationError


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """The mapping that the file at `path` holds.

    Args:
        path: the file.
        what: what it should be, such as "a spec is a mapping with name, groups and store".

    Raises:
        UserError: one sentence: it cannot be read, is not YAML, or is no mapping.
    """
    import yaml

    try:
        text = path.read_text()
        try:  # libyaml is ten times as quick, and PyYAML's own words are the better ones
            data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:
            data = yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: {what}.")
    return data


def plain_message(error: ValidationError) -> str:
    """The first thing that a model found wrong, in the words that the model has for it."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


def message_of(error: ValidationError) -> str:
    """The first thing that a model found wrong, to follow a colon."""
    message = plain_message(error)
    return message[:1].lower() + message[1:]
