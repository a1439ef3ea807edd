"""Table 1 as typed workloads, and their XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from pydantic import ValidationError

from schemas.errors import UserError
from tests.errors import raises
from workloads.cosbench.workload import (
    STAGES,
    TABLE_1,
    CosbenchWorkload,
    Keystone,
    S3Storage,
    SwAuth,
    SwiftStorage,
    parse_sizes,
    scaled,
    to_xml,
)


def root_of(workload: CosbenchWorkload, **options: object) -> ET.Element:
    return ET.fromstring(to_xml(workload, **options))  # type: ignore[arg-type]


def test_table_1_is_the_papers() -> None:
    found = {
        letter: (str(w.sizes), w.read, w.write, w.delete, w.runtime_s, w.letter)
        for letter, w in TABLE_1.items()
    }
    assert found == {
        "A": ("u(1,128)KB", 90, 5, 5, 900, "A"),
        "B": ("u(1,128)KB", 5, 90, 5, 900, "B"),
        "C": ("u(1,128)MB", 90, 5, 5, 900, "C"),
        "D": ("u(1,128)MB", 5, 90, 5, 900, "D"),
    }


def test_the_xml_of_a() -> None:
    auth = SwAuth(username="t:t", password="a<b", auth_url="http://192.0.2.1/auth")
    named = TABLE_1["A"].with_(name="My_Web", workers=8, runtime_s=30, rampup_s=2, auth=auth)
    root = root_of(named.with_(storage=SwiftStorage()))
    assert root.get("name") == "My_Web"
    found = [(child.tag, child.get("type"), child.get("config")) for child in root][:2]
    config = "username=t:t;password=a<b;auth_url=http://192.0.2.1/auth"
    assert found == [("auth", "swauth", config), ("storage", "swift", "timeout=30000")]
    head = "cprefix=my-web;containers="  # a name that S3 takes
    assert [
        (stage.get("name"), *(stage[0].get(key) for key in ("type", "workers", "config")))
        for stage in root.iter("workstage")
    ] == [
        ("init", "init", "1", f"{head}r(1,4)"),
        ("prepare", "prepare", "4", f"{head}r(1,4);objects=r(1,50);sizes=u(1,128)KB"),
        ("main", None, "8", None),
        ("cleanup", "cleanup", "4", f"{head}r(1,4);objects=r(1,100)"),
        ("dispose", "dispose", "1", f"{head}r(1,4)"),
    ]
    (main,) = (work for work in root.iter("work") if work.get("name") == "main")
    times = {"interval": "5", "runtime": "30", "rampup": "2", "rampdown": "0"}
    assert main.attrib == {"name": "main", "workers": "8", **times}
    # Reads have their objects to themselves.
    assert [tuple(operation.attrib.values()) for operation in main] == [
        ("read", "90", f"{head}u(1,4);objects=u(1,50)"),
        ("write", "5", f"{head}u(1,4);objects=u(51,100);sizes=u(1,128)KB"),
        ("delete", "5", f"{head}u(1,4);objects=u(51,100)"),
    ]
    assert len(TABLE_1["A"].with_(name="X").container_prefix + "1") >= 3  # as S3 wants
    for stages in ((), ("main", "warmup")):
        with raises(UserError, allowed=", ".join(STAGES)):
            to_xml(TABLE_1["A"], stages)


def test_secrets_are_in_the_xml_and_in_nothing_else_that_shows_a_workload() -> None:
    kept = TABLE_1["A"].with_(
        storage=S3Storage(accesskey="AKEY", secretkey="SKEY", endpoint="http://192.0.2.1:8080"),
        auth=Keystone(username="u", password="PWORD", auth_url="http://192.0.2.1:5000/v3"),
    )
    for secret in ("AKEY", "SKEY", "PWORD"):
        assert secret in to_xml(kept)
        assert secret not in repr(kept)
    for value in ("a;b", "a\nb"):
        with raises(ValidationError, "cannot be printed") as caught:
            SwAuth(username="u", password=value)
        assert value not in str(caught.value.errors()[0]["msg"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"read": 91}, "91 + 5 + 5"),
        ({"runtime_s": None}, "runtime_s or total_ops"),
        ({"workers": 0}, "workers: 0 is not allowed"),
        ({"total_ops": 31}, "(31) cannot be divided among 32"),
        ({"colour": "red"}, "colour: "),
    ],
)
def test_a_mistake_in_a_workload_is_named(changes: dict[str, object], says: str) -> None:
    with raises(UserError, says):
        TABLE_1["A"].with_(**changes)


def test_scaling_changes_the_largest_object() -> None:
    assert str(scaled(TABLE_1["C"], 1 / 8).sizes) == "u(1,16)MB"
    fixed = TABLE_1["A"].with_(sizes=parse_sizes("64KB"))
    assert str(scaled(fixed, 0.25).sizes) == "c(16)KB"
    for workload, factor in ((TABLE_1["C"], 1 / 7), (TABLE_1["C"], 1 / 256), (fixed, 1e9)):
        with raises(UserError, do="whole number"):
            scaled(workload, factor)


def test_sizes_as_people_write_them() -> None:
    assert str(parse_sizes("64KB")) == "c(64)KB"
    assert str(parse_sizes(" 1-16 MB")) == "u(1,16)MB"
    for wrong in ("", "64", "16-1MB", "0-4KB", "1-2TB", "2147483648B", "9" * 5000 + "B"):
        with raises(UserError, "is no object size"):
            parse_sizes(wrong)
