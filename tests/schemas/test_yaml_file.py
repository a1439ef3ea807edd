"""YAML files that people write, read as mappings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from schemas.yaml_file import dump, load, read_mapping, survey
from tests.errors import raises


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Return a function that reads a file with this content; None gives the error without one."""

    def reading(content: str | bytes | None, shape: str = "it is a mapping") -> dict[str, Any]:
        file = tmp_path / "a.yaml"
        if content is not None:
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_mapping(file, shape)

    return reading


@pytest.mark.parametrize("content", [None, b"a: [1\n", b"\x80\x81", b"- 1\n", b""])
def test_what_is_none_is_one_sentence(read, content):
    with raises(UserError, where="a.yaml") as raised:
        read(content, "it is a mapping with name")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("name: x\nstore: 1\nname: y\n", r"the key 'name' of line 1 is there again in line 3"),
        ("a:\n  - {b: 1,\n     b: 1}\n", r"the key 'b' of line 2 is there again in line 3"),
        ("{}: 1\na: 1\n'a': 2\n", r"the key 'a' of line 2 is there again in line 3"),
        ("1: a\n0x1: b\n", r"the key '1' of line 1 is there again in line 2"),
        ("yes: a\ntrue: b\n", r"the key 'yes' of line 1 is there again in line 2"),
        ("a: &x {b: 1, b: 2}\nc: *x\n", r"the key 'b' of line 1 is there again in line 1"),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_its_lines(read, content, says):
    with raises(UserError, says, where="a.yaml"):
        read(content)


def test_what_a_merge_brings_may_be_said_again(read):
    """Merged keys may be overridden; two mappings may have the same keys."""
    assert read(
        "one: &one {a: 1, b: 1}\ntwo: &two {<<: *one, a: 2}\nthree: {<<: *two, <<: *one, b: 3}\n"
    ) == {
        "one": {"a": 1, "b": 1},
        "two": {"a": 2, "b": 1},
        "three": {"a": 1, "b": 3},
    }


def test_a_vaulted_value_is_named_without_its_ciphertext(read):
    with raises(UserError, "line 2 is vaulted") as refused:
        read("a: 1\nb: !vault $ANSIBLE_VAULT;1.1;AES256 623133\n")
    assert "6231" not in str(refused.value)


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
"""Eight levels of aliases: 43 million texts."""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (LAUGHS, "its aliases stand for more"),
        ("a: &a [*a]\n", "its aliases stand for more"),
        ("a: &a {b: *a}\n", "its aliases stand for more"),
        ("[" * 100_000, "line 1"),
        ("{a: " * 100_000, "line 1"),
        ("".join(f"{'  ' * depth}a:\n" for depth in range(1000)), "line 51"),
        ("- " * 100_000, "line 1"),
    ],
    ids=["laughs", "itself", "own value", "lists", "mappings", "blocks", "dashes"],
)
def test_what_would_exhaust_its_reader_is_one_sentence(read, content, says):
    with raises(UserError, says) as raised:
        read(content)
    assert "\n" not in str(raised.value)


def test_what_is_dumped_has_no_aliases_and_is_read_back():
    shared = {"a": ["1e9", "0100", 1.5, "größer"]}
    text = dump({"one": shared, "two": shared})
    assert not survey(text, allowed=False)
    assert load(text) == {"one": shared, "two": shared}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("name: x\nnumbers: [1, 2\nother: y\n", ["line 3, column 6", "other"]),
        ("a: 1\nb: !other x\n", ["'!other'", "line 2"]),
        ("a: 1\nb: !!bool abc\n", ["'abc' in line 2"]),
        ("a: !!int ''\n", ["'' in line 1"]),
        ("a: !!timestamp x\n", ["'x' in line 1"]),
        ("!!bool abc: 1\n", ["'abc' in line 1"]),
        *((f"{tag} a: 1\n", ["line 1"]) for tag in ("!!map", "!!set", "!!seq")),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_what_is_there(read, text, facts):
    with raises(UserError, *facts):
        read(text)
