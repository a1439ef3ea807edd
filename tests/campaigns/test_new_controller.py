"""Template of `hotbed new controller`: it works, and its test can fail."""

from __future__ import annotations

import subprocess
import sys

import pytest

from campaigns.new_controller import NewController, new_controller
from controllers.registry import create, find
from schemas.errors import UserError
from tests.errors import raises


def test_it_is_a_controller_of_that_name(tmp_path):
    made = new_controller("my_first-one", tmp_path / "a" / "b")
    assert made == NewController(
        "my-first-one",
        tmp_path / "a" / "b",
        tmp_path / "a" / "b" / "my_first_one" / "policy.py",
        tmp_path / "a" / "b" / "test_my_first_one.py",
    )
    policy = create(find("my-first-one", [made.directory]), {"busy": 70}, 1)
    assert policy.name == "my-first-one"
    assert policy.parameters() == {"busy": 70.0, "calm": 30.0, "affinity": 0.3}
    assert type(policy).__name__ == "MyFirstOnePolicy"


@pytest.mark.slow
@pytest.mark.parametrize("broken", [False, True])
def test_its_test_passes_and_fails_when_the_policy_is_wrong(tmp_path, broken):
    made = new_controller("mine", tmp_path)
    if broken:
        text = made.policy.read_text()
        made.policy.write_text(text.replace("pressure > self._p.busy", "pressure < self._p.busy"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", made.test.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (1 if broken else 0), done.stdout
    assert ("5 passed" in done.stdout) is not broken


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "is no name for a"),
        ("../up", "is no name for a"),
        ("mine\n", "is no name for a"),
        ("x" * 41, "at most 40"),
        ("dlr", "taken by Hotbed itself"),
        ("all", "taken by Hotbed itself"),
    ],
)
def test_names(tmp_path, name, said):
    with raises(UserError, said):
        new_controller(name, tmp_path / "own")
    assert not (tmp_path / "own").exists()


def test_nothing_is_overwritten(tmp_path):
    made = new_controller("mine", tmp_path)
    made.policy.write_text("# an evening's work\n")
    with raises(UserError, "exists already"):
        new_controller("mine", tmp_path)
    assert made.policy.read_text() == "# an evening's work\n"
    made.policy.unlink()
    made.policy.parent.rmdir()
    with raises(UserError, where="test_mine.py"):
        new_controller("mine", tmp_path)
