"""YAML files that people write: what is wrong with one is a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.errors import UserError

if TYPE_CHECKING:
    import yaml
    from pydantic import ValidationError

_MERGE = "tag:yaml.org,2002:merge"


class DoubleKeyError(ValueError):
    """A mapping has a key twice, of which YAML's readers drop one; the message says where."""


def load(text: str) -> Any:
    """What YAML's `safe_load` makes of `text`, in which no mapping may have a key twice.

    Raises:
        DoubleKeyError: one has.
        ValueError: a date or number in it cannot be.
        yaml.YAMLError: it is not YAML.
    """
    import yaml

    try:  # libyaml is ten times as quick, and PyYAML's own words are the better ones
        return _load(getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text))
    except yaml.YAMLError:
        return _load(yaml.SafeLoader(text))


def read(path: Path, name: str = "") -> Any:
    """What the YAML file at `path` holds, which sentences call `name`, or else `path`.

    Raises:
        UserError: one sentence: it cannot be read, is not YAML, or has a key twice.
    """
    import yaml

    name = name or str(path)
    try:
        return load(path.read_text())
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror}).") from error
    except DoubleKeyError as error:
        raise UserError(f"{name}: {error}.") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: no UTF-8, or a 13th month
        raise UserError(f"{name}: is not YAML: {' '.join(str(error).split())}.") from error


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """The mapping that the file at `path` holds.

    Args:
        path: the file.
        what: what it should be, such as "a spec is a mapping with name, groups and store".

    Raises:
        UserError: one sentence: see `read`, or it is no mapping.
    """
    data = read(path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: {what}.")
    return data


def _load(loader: Any) -> Any:
    """The only document of a loader of PyYAML's, looked through before anything is made of it:
    then it still has what is there twice."""
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_double_keys(loader, node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_double_keys(loader: Any, root: yaml.Node) -> None:
    import yaml

    todo, seen = [root], set[int]()
    while todo:
        node = todo.pop()
        if id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
            continue
        first: dict[object, yaml.ScalarNode] = {}
        for key, value in node.value:
            todo += (key, value)
            # What a merge (<<) brings is there to be said again; other keys are not for reading.
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            try:
                known = first.setdefault(loader.construct_object(key), key)
            except (yaml.YAMLError, ValueError):
                continue  # construction says it
            if known is not key:
                lines = known.start_mark.line + 1, key.start_mark.line + 1
                raise DoubleKeyError(
                    f"the key {known.value!r} of line {lines[0]} is there again in line "
                    f"{lines[1]}: keep one of them"
                )


def plain_message(error: ValidationError) -> str:
    """The first thing that a model found wrong, in the words that the model has for it."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


def message_of(error: ValidationError) -> str:
    """The first thing that a model found wrong, to follow a colon."""
    message = plain_message(error)
    return message[:1].lower() + message[1:]
