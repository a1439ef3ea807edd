"""YAML files that people write: what is wrong with one is a sentence."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.errors import UserError
from schemas.numbers import EXPONENT, refuse_other_bases, whole

if TYPE_CHECKING:
    import yaml
    from pydantic import ValidationError

_MERGE, _TEXT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
MOST_DEPTH = 50
MOST_NODES = 200_000
"""Nodes of a file with aliases, each counted as often as it is meant."""


class ContentError(ValueError):
    """YAML that is refused: a repeated key (readers would drop one), an impossible date or number,
    a number that is not decimal, or a text made to exhaust its reader. The message says where."""


def load(text: str, *, decimals: bool = True) -> Any:
    """Return what YAML's `safe_load` makes of `text`, in which no mapping may have a key twice, and
    1e9 is a number as in YAML 1.2.

    Args:
        decimals: refuse numbers that are octal or of base 60 by how they are written, and vaulted
            values; Ansible's files may have them.

    Raises:
        ContentError: a mapping has a key twice, a date or number in it cannot be, or it is made to
            exhaust its reader.
        yaml.YAMLError: it is not YAML.
    """
    import yaml

    aliases = survey(text)
    quick, precise = _loaders()  # libyaml is ten times as quick; PyYAML's errors are better
    try:
        return _load(quick(text), decimals, aliases)
    except yaml.YAMLError:
        return _load(precise(text), decimals, aliases)


@cache
def _loaders() -> tuple[Any, Any]:
    """Loaders on libyaml and on Python that know numbers with an exponent alone (1e9)."""
    import yaml

    def number(loader: Any, node: yaml.ScalarNode) -> int | float:
        value = float(loader.construct_yaml_float(node))
        return whole(value) if EXPONENT.match(node.value) else value

    made = []
    for base in (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader):
        loader: Any = type("Loader", (base,), {})
        loader.add_implicit_resolver(_FLOAT, EXPONENT, list("-+.0123456789"))
        loader.add_constructor(_FLOAT, number)
        made.append(loader)
    return made[0], made[1]


def survey(text: str, *, allowed: bool = True) -> bool:
    """Return True if `text` has aliases. What is no YAML has none.

    Args:
        text: the text; it is only scanned, never loaded.
        allowed: False if it may have none.

    Raises:
        ContentError: it is nested deeper than `MOST_DEPTH`, or has an alias that it may not have.
    """
    import yaml

    depth, aliases = 0, False
    with suppress(yaml.YAMLError):
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            mark = event.start_mark
            line = mark.line + 1 if mark is not None else 0
            if depth > MOST_DEPTH:
                raise ContentError(f"line {line} is nested more than {MOST_DEPTH} deep")
            if isinstance(event, yaml.AliasEvent):
                aliases = True
                if not allowed:
                    raise ContentError(
                        f"line {line} has the alias *{event.anchor}: write out what it stands for"
                    )
    return aliases


def dump(value: Any) -> str:
    """Return `value` as YAML in its own order, without aliases."""
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, _data: Any) -> bool:
            return True

    Plain.add_implicit_resolver(_FLOAT, EXPONENT, list("-+.0123456789"))  # as texts read them
    text: str = yaml.dump(value, Dumper=Plain, sort_keys=False, allow_unicode=True, width=90)
    return text


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


def _load(loader: Any, decimals: bool, aliases: bool) -> Any:
    """The only document of a loader of PyYAML's, looked through before anything is made of it:
    then it still has what is there twice."""
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        for each in _nodes(node):
            if decimals:
                _look_at_value(each)
            _look_through(loader, each)
        if aliases:
            _require_few(node)
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


def _look_at_value(node: yaml.Node) -> None:
    """Raise ContentError for a number that is not in decimals, and for a vaulted value."""
    if node.tag == "!vault":
        raise ContentError(f"the value in line {_line(node)} is vaulted: write it unencrypted")
    if node.tag in {_INT, _FLOAT}:
        try:
            refuse_other_bases(node.value)
        except ValueError as error:
            raise ContentError(f"line {_line(node)}: {error}") from None


def _require_few(root: yaml.Node) -> None:
    """Raise ContentError if aliases make more nodes of a document than it may have."""
    import yaml

    todo, count = [root], 0
    while todo:
        node = todo.pop()
        count += 1
        if count > MOST_NODES:
            raise ContentError(
                f"its aliases stand for more than {MOST_NODES:,} values: write less of them"
            )
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
        elif isinstance(node, yaml.MappingNode):
            todo += [each for pair in node.value for each in pair]


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
            f"{_shown(node)} in line {_line(node)} cannot be: {error}; a text is put into quotes"
        ) from error
    except (LookupError, AttributeError) as error:  # what PyYAML's readers of values come to
        tag = node.tag.rpartition(":")[2]
        raise ContentError(
            f"{_shown(node)} in line {_line(node)} is no {tag}, as its tag says: leave !!{tag} out"
        ) from error
    return value if isinstance(value, Hashable) else node


def _shown(node: yaml.ScalarNode) -> str:
    return repr(node.value if len(node.value) < 80 else f"{node.value[:80]}...")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def plain_message(error: ValidationError) -> str:
    """The first thing that a model found wrong, in the words that the model has for it."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
