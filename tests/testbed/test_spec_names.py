"""Names in a spec: they become host names, folders and names of interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from schemas.errors import UserError
from testbed.spec import load_spec

BAD = ["Big", "0th", "-a", "a_b", "a.b", "a" * 21, "", "a\n"]
GOOD = ["a", "a-1", "a" * 20]


def written(path: Path, *, testbed: str = "t", group: str = "admin") -> Path:
    admin = {"name": group, "roles": ["admin", "client"]}
    path.write_text(yaml.safe_dump({"name": testbed, "store": None, "groups": [admin]}))
    return path


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_one_sentence(tmp_path: Path, name: str) -> None:
    for where, told in (("testbed", "name"), ("group", "groups.0.name")):
        path = written(tmp_path / "spec.yaml", **{where: name})
        with pytest.raises(UserError, match="1 to 20 lower-case letters, digits or -") as error:
            load_spec(path)
        assert told in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name_is_taken(tmp_path: Path, name: str) -> None:
    found = load_spec(written(tmp_path / "spec.yaml", testbed=name, group=name))
    assert (found.name, found.groups[0].name) == (name, name)
