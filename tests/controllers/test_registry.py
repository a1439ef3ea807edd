"""Discovery of controllers, and refusal of faulty ones in one sentence."""

from __future__ import annotations

import shutil

import pytest

from controllers.registry import BUILT_IN, code_hash, create, find, refuse_unoffered
from schemas.errors import UserError
from testbed.stores.contract import Needs
from tests.controllers import naughty
from tests.errors import raises


def write(folder, name, text):
    (folder / name).mkdir(parents=True)
    (folder / name / "policy.py").write_text(text)
    return folder


def test_an_unknown_name_is_reported_with_the_known_ones():
    with raises(UserError, "no controller 'drl'"):
        find("drl")


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("dlr", {"theta_x": 1}, "'theta_x'"),
        ("dlr", {"theta_i": 2}, "'theta_i'"),
        ("dlr", {"theta_i": float("nan")}, "allowed: a number"),
        ("dlr-pg", {"max_swaps": 1.5}, "allowed: a whole number"),
        ("default", {"x": 1}, "allowed: none"),
        ("oracle", {"affinity": -1}, "allowed: 0 to 1"),
        ("ursa", {"capacity": -1}, "'capacity'"),
        ("htoc", {"fault_domain": "room"}, "allowed: host, rack"),
        ("ursa", {"dry_run": "maybe"}, "allowed: true, false"),
    ],
)
def test_parameters_are_checked(name, parameters, words):
    with raises(UserError, words):
        create(find(name), parameters, 1)


def test_needs_that_a_store_does_not_offer_are_named():
    offers = Needs(frozenset({"osds"}), frozenset({"primary-affinity"}))
    with raises(UserError, "dlr-pg", "Swift", "sense pgs", "sense pressure", "change pg-upmap"):
        refuse_unoffered("dlr-pg", create(find("dlr-pg"), {}, 1).needs, offers, "Swift")
    refuse_unoffered("default", create(find("default"), {}, 1).needs, offers, "Swift")


def test_a_controller_outside_is_found_and_may_import_its_neighbours(tmp_path):
    naughty.write(tmp_path, "mine", "return {'n': helper()}, []")
    (tmp_path / "mine" / "other.py").write_text("def helper():\n    return 41\n")
    policy = tmp_path / "mine" / "policy.py"
    policy.write_text("from .other import helper\n" + policy.read_text())
    for dirs in ([tmp_path], [tmp_path / "mine"]):
        controller = find("mine", dirs)
        assert controller.outside
        assert create(controller, {}, 1).name == "mine"
    policy.write_text(policy.read_text().replace("return Policy()", "raise ValueError('no')"))
    with raises(UserError, "ValueError"):
        create(find("mine", [tmp_path]), {}, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_this_name", "does not load"),
        ("def create(:", "does not load"),
        ("x = 1", "defines no create"),
        ("def create(p, s): return object()", "lacks name"),
    ],
)
def test_a_broken_controller_is_reported_in_one_sentence(tmp_path, text, words):
    with raises(UserError, words) as report:
        create(find("mine", [write(tmp_path, "mine", text)]), {}, 1)
    assert "\n" not in str(report.value)


def test_the_policys_name_must_be_the_folders(tmp_path):
    naughty.write(tmp_path, "mine", "return state, []")
    shutil.move(tmp_path / "mine", tmp_path / "yours")
    with raises(UserError, "calls itself 'mine'"):
        create(find("yours", [tmp_path]), {}, 1)


def test_the_hash_is_of_contents_alone(tmp_path):
    shutil.copytree(BUILT_IN / "dlr", tmp_path / "copy", ignore=shutil.ignore_patterns("*.pyc"))
    one = code_hash(find("copy", [tmp_path]))
    assert one == code_hash(find("dlr"))
    (tmp_path / "copy" / "__pycache__").mkdir(exist_ok=True)
    (tmp_path / "copy" / "__pycache__" / "x.pyc").write_bytes(b"1")
    assert one == code_hash(find("copy", [tmp_path]))
    (tmp_path / "copy" / "policy.py").write_text("# other\n")
    assert one != code_hash(find("copy", [tmp_path]))
