"""YAML files that people write: what is wrong with one is a sentence."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.errors import UserError

if TYPE_CHECKING:
    import yaml
    from pydantic import ValidationError

_MERGE, _TEXT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"


class ContentError(ValueError):
    """A mapping has a key twice, of which YAML's readers drop one, or a date or number cannot be;
    the message says where."""


def load(text: str) -> Any:
    """What YAML's `safe_load` makes of `text`, in which no mapping may have a key twice.

    Raises:
        ContentError: one has, or a date or number in it cannot be.
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
        UserError: one sentence: it cannot be read, is not YAML, has a key twice, or a value that
            cannot be.
    """
    import yaml

    name = name or str(path)
    try:
        return load(path.read_text())
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror}).") from error
    except ContentError as error:
        raise UserError(f"{name}: {error}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
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
        for each in _nodes(node):
            _look_through(loader, each)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """A node and all below it, each once."""
    import yaml

    todo, seen = [root], set[int]()
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            todo += reversed(node.value)
        elif isinstance(node, yaml.MappingNode):
            todo += [each for pair in reversed(node.value) for each in reversed(pair)]


def _look_through(loader: Any, node: yaml.Node) -> None:
    """Raise ContentError for a mapping with a key twice, and for a value that cannot be."""
    import yaml

    if isinstance(node, yaml.ScalarNode) and node.tag != _TEXT:
        _value(loader, node)
    if not isinstance(node, yaml.MappingNode):
        return
    first: dict[object, yaml.ScalarNode] = {}
    for key, _ in node.value:
        # What a merge (<<) brings is there to be said again; other keys are not for reading.
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        known = first.setdefault(_value(loader, key), key)
        if known is not key:
            raise ContentError(
                f"the key {known.value!r} of line {_line(known)} is there again in line "
                f"{_line(key)}: keep one of them"
            )


def _value(loader: Any, node: yaml.ScalarNode) -> object:
    """What a scalar says; the node itself of one that construction tells of: with a tag that
    nobody knows, or that makes it more than a scalar."""
    import yaml

    try:
        value: object = loader.construct_object(node)
    except yaml.YAMLError:
        loader.recursive_objects.pop(node, None)  # else it is told of as one that holds itself
        return node
    except ValueError as error:
        raise ContentError(
            f"{node.value!r} in line {_line(node)} cannot be: {error}; a text is put into quotes"
        ) from error
    except (LookupError, AttributeError) as error:  # what PyYAML's readers of values come to
        tag = node.tag.rpartition(":")[2]
        raise ContentError(
            f"{node.value!r} in line {_line(node)} is no {tag}, as its tag says: leave !!{tag} out"
        ) from error
    return value if isinstance(value, Hashable) else node


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def plain_message(error: ValidationError) -> str:
    """The first thing that a model found wrong, in the words that the model has for it."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
