"""YAML files that people write; every mistake in one becomes a sentence."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas.errors import UserError, nearest
from schemas.numbers import EXPONENT, refuse_other_bases, whole

if TYPE_CHECKING:
    import yaml
    from pydantic import ValidationError

_MERGE, _TEXT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
MOST_DEPTH = 50
MOST_NODES = 200_000
"""Limit of nodes of a file with aliases, each counted once per use."""


class ContentError(ValueError):
    """Error for refused YAML: a repeated key (readers would drop one), an impossible date or
    number, a number not in decimals, or a text that would exhaust its reader. It names the line."""


def load(text: str, *, decimals: bool = True) -> Any:
    """Return the result of YAML's `safe_load` on `text`, but refuse a repeated key and read 1e9 as
    a number, as in YAML 1.2. `decimals` refuses numbers written as octal or base 60, and vaulted
    values; Ansible's files may have them. ContentError: a mapping repeats a key, a date or number
    is impossible, or the text is made to exhaust its reader. yaml.YAMLError: it is not YAML."""
    import yaml

    aliases = survey(text)
    quick, precise = _loaders()  # libyaml is ten times faster; PyYAML's errors are better
    try:
        return _load(quick(text), decimals, aliases)
    except yaml.YAMLError:
        return _load(precise(text), decimals, aliases)


@cache
def _loaders() -> tuple[Any, Any]:
    """Return loaders on libyaml and on Python that know numbers with only an exponent (1e9)."""
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
    """Return True if `text` has aliases. A text that is no YAML has none. It is only scanned, never
    loaded. ContentError: it is nested deeper than `MOST_DEPTH`, or has an alias that is not
    `allowed`."""
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

    class PlainDumper(yaml.SafeDumper):
        def ignore_aliases(self, _data: Any) -> bool:
            return True

    PlainDumper.add_implicit_resolver(_FLOAT, EXPONENT, list("-+.0123456789"))  # as texts are read
    text: str = yaml.dump(value, Dumper=PlainDumper, sort_keys=False, allow_unicode=True, width=90)
    return text


def read(path: Path, name: str = "") -> Any:
    """Return the content of the YAML file at `path`; sentences call it `name`, or else `path`.
    UserError: one sentence: it cannot be read, is not YAML, repeats a key, or has an impossible
    value."""
    import yaml

    name = name or str(path)
    try:
        return load(path.read_text())
    except FileNotFoundError as error:
        raise no_file(path, name=name) from error
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=name) from error
    except ContentError as error:
        raise UserError(error, where=name) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"is not YAML: {' '.join(str(error).split())}", where=name) from error


def no_file(path: Path, shipped: Iterable[Path] = (), name: str = "") -> UserError:
    """Return the mistake of a missing YAML file, with the nearest name of a file in its folder or
    of a `shipped` one. Sentences call it `name`, or else `path`."""
    here = f"{Path.cwd()}/"
    known: dict[str, str] = {}
    for each in (*shipped, *path.parent.glob("*.yaml")):
        known |= dict.fromkeys((each.stem, each.name), str(each).removeprefix(here))
    return UserError("there is no such file", where=name or path, do=nearest(path.name, known))


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """Return the mapping in the file at `path`.

    Args:
        path: the file.
        what: the expected content, such as "a spec is a mapping with name, groups and store".

    Raises:
        UserError: one sentence: see `read`, or it is no mapping.
    """
    data = read(path)
    if not isinstance(data, dict):
        raise UserError(what, where=path)
    return data


def _load(loader: Any, decimals: bool, aliases: bool) -> Any:
    """Return the only document of a PyYAML loader. It is checked before construction: only then can
    repeated keys be seen."""
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
    """Yield a node and all nodes below it, each once."""
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
    """Raise ContentError for a number that is not decimal, and for a vaulted value."""
    if node.tag == "!vault":
        raise ContentError(f"the value in line {_line(node)} is vaulted: write it unencrypted")
    if node.tag in {_INT, _FLOAT}:
        try:
            refuse_other_bases(node.value)
        except ValueError as error:
            raise ContentError(f"line {_line(node)}: {error}") from None


def _require_few(root: yaml.Node) -> None:
    """Raise ContentError if aliases expand a document to more than `MOST_NODES` nodes."""
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
    """Raise ContentError for a mapping with a repeated key, and for an impossible value."""
    import yaml

    if isinstance(node, yaml.ScalarNode) and node.tag != _TEXT:
        _value(loader, node)
    if not isinstance(node, yaml.MappingNode):
        return
    first: dict[object, yaml.ScalarNode] = {}
    for key, _ in node.value:
        # Keys from a merge (<<) may be repeated; keys that are no scalars are not compared.
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        known = first.setdefault(_value(loader, key), key)
        if known is not key:
            raise ContentError(
                f"the key {known.value!r} of line {_line(known)} is there again in line "
                f"{_line(key)}: keep one of them"
            )


def _value(loader: Any, node: yaml.ScalarNode) -> object:
    """Return a scalar's value. Return the node itself if construction will report it: its tag is
    unknown, or makes it more than a scalar."""
    import yaml

    try:
        value: object = loader.construct_object(node)
    except yaml.YAMLError:
        loader.recursive_objects.pop(node, None)  # or it would be reported as containing itself
        return node
    except ValueError as error:
        raise ContentError(
            f"{_shown(node)} in line {_line(node)} cannot be: {error}; a text is put into quotes"
        ) from error
    except (LookupError, AttributeError) as error:  # raised by PyYAML's readers of values
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
    """Return the first error of a model, in the model's own words."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
