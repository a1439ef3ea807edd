"""YAML files that people write, read as mappings."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from schemas.errors import UserError
from schemas.yaml_file import message_of, read_mapping


def test_a_mapping_is_read(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("name: x\nnumbers: [1, 2]\n")
    assert read_mapping(file, "it is a mapping") == {"name": "x", "numbers": [1, 2]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"a\.yaml: cannot be read \(No such file or directory\)\.$"),
        (b"a: [1\n", r"a\.yaml: is not YAML: .*\.$"),
        (b"\x80\x81", r"a\.yaml: is not YAML: .*\.$"),
        (b"- 1\n", r"a\.yaml: it is a mapping with name\.$"),
        (b"", r"a\.yaml: it is a mapping with name\.$"),
    ],
)
def test_what_is_none_is_one_sentence(tmp_path, content, says):
    file = tmp_path / "a.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=says) as raised:
        read_mapping(file, "it is a mapping with name")
    assert "\n" not in str(raised.value)


def test_a_mistake_is_told_with_its_line_and_what_is_there(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("name: x\nnumbers: [1, 2\nother: y\n")
    with pytest.raises(UserError, match=r"line 3, column 6.*other: y"):
        read_mapping(file, "it is a mapping")


def test_what_a_model_says_follows_a_colon():
    class Model(BaseModel):
        size: int

        @field_validator("size")
        @classmethod
        def _even(cls, size: int) -> int:
            if size % 2:
                raise ValueError("Sizes are even")
            return size

    with pytest.raises(ValidationError) as raised:
        Model(size=3)
    assert message_of(raised.value) == "sizes are even"
