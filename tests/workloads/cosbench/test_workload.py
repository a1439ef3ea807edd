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
    Constant,
    CosbenchSizes,
    CosbenchWorkload,
    Keystone,
    S3Storage,
    SwAuth,
    SwiftStorage,
    Uniform,
    Weighted,
    WeightedPart,
    parse_sizes,
    scaled,
    to_xml,
)


def root_of(workload: CosbenchWorkload, **options: object) -> ET.Element:
    return ET.fromstring(to_xml(workload, **options))  # type: ignore[arg-type]


def test_table_1_is_the_papers() -> None:
    said = {
        letter: (str(w.sizes), w.read, w.write, w.delete, w.runtime_s)
        for letter, w in TABLE_1.items()
    }
    assert said == {
        "A": ("u(1,128)KB", 90, 5, 5, 900),
        "B": ("u(1,128)KB", 5, 90, 5, 900),
        "C": ("u(1,128)MB", 90, 5, 5, 900),
        "D": ("u(1,128)MB", 5, 90, 5, 900),
    }
    assert TABLE_1["A"].sizes.mean_bytes == 64_500
    assert all(w.letter == letter for letter, w in TABLE_1.items())


def test_the_xml_of_a_is_exactly_this() -> None:
    small = TABLE_1["A"].with_(
        name="web",
        workers=8,
        runtime_s=30,
        rampup_s=2,
        storage=SwiftStorage(),
        auth=SwAuth(
            username="test:tester", password="a<b", auth_url="http://192.0.2.1:8080/auth/v1.0"
        ),
    )
    assert to_xml(small) == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<workload name="web" description="u(1,128)KB, 90% read, 5% write, 5% delete '
        '(MOS, Table 1, A)">\n'
        '  <auth type="swauth" config="username=test:tester;password=a&lt;b;'
        'auth_url=http://192.0.2.1:8080/auth/v1.0"/>\n'
        '  <storage type="swift" config="timeout=30000"/>\n'
        "  <workflow>\n"
        '    <workstage name="init">\n'
        '      <work type="init" workers="1" config="cprefix=web;containers=r(1,4)"/>\n'
        "    </workstage>\n"
        '    <workstage name="prepare">\n'
        '      <work type="prepare" workers="4" config="cprefix=web;containers=r(1,4);'
        'objects=r(1,50);sizes=u(1,128)KB"/>\n'
        "    </workstage>\n"
        '    <workstage name="main">\n'
        '      <work name="main" workers="8" interval="5" runtime="30" rampup="2" rampdown="0">\n'
        '        <operation type="read" ratio="90" '
        'config="cprefix=web;containers=u(1,4);objects=u(1,50)"/>\n'
        '        <operation type="write" ratio="5" '
        'config="cprefix=web;containers=u(1,4);objects=u(51,100);sizes=u(1,128)KB"/>\n'
        '        <operation type="delete" ratio="5" '
        'config="cprefix=web;containers=u(1,4);objects=u(51,100)"/>\n'
        "      </work>\n"
        "    </workstage>\n"
        '    <workstage name="cleanup">\n'
        '      <work type="cleanup" workers="4" config="cprefix=web;containers=r(1,4);'
        'objects=r(1,100)"/>\n'
        "    </workstage>\n"
        '    <workstage name="dispose">\n'
        '      <work type="dispose" workers="1" config="cprefix=web;containers=r(1,4)"/>\n'
        "    </workstage>\n"
        "  </workflow>\n"
        "</workload>\n"
    )


def test_reads_have_their_objects_to_themselves() -> None:
    main = next(work for work in root_of(TABLE_1["B"]).iter("work") if work.get("name") == "main")
    objects = {
        operation.get("type"): dict(
            part.split("=") for part in operation.get("config", "").split(";")
        )["objects"]
        for operation in main
    }
    assert objects == {"read": "u(1,50)", "write": "u(51,100)", "delete": "u(51,100)"}


def test_an_operation_of_no_share_is_left_out_and_stages_keep_their_order() -> None:
    only = TABLE_1["A"].with_(read=100, write=0, delete=0, total_ops=500, runtime_s=None)
    root = root_of(only, stages=("main", "init"))
    assert [stage.get("name") for stage in root.iter("workstage")] == ["init", "main"]
    (operation,) = root.iter("operation")
    assert (operation.get("type"), operation.get("ratio")) == ("read", "100")
    work = next(work for work in root.iter("work") if work.get("name") == "main")
    assert (work.get("runtime"), work.get("totalOps")) == (None, "500")


@pytest.mark.parametrize("stages", [(), ("main", "warmup")])
def test_unknown_stages_are_named(stages: tuple[str, ...]) -> None:
    with raises(UserError, allowed=", ".join(STAGES)):
        to_xml(TABLE_1["A"], stages)


def test_secrets_are_in_the_xml_only_when_it_is_for_the_driver() -> None:
    kept = TABLE_1["A"].with_(
        storage=S3Storage(accesskey="AKEY", secretkey="SKEY", endpoint="http://192.0.2.1:8080"),
        auth=Keystone(username="u", password="PWORD", auth_url="http://192.0.2.1:5000/v3"),
    )
    for secret in ("AKEY", "SKEY", "PWORD"):
        assert secret in to_xml(kept)
        assert secret not in to_xml(kept, masked=True)
        assert secret not in repr(kept)
    assert "accesskey=***;secretkey=***" in to_xml(kept, masked=True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"read": 91}, "91 + 5 + 5"),
        ({"runtime_s": None}, "runtime_s or total_ops"),
        ({"workers": 0}, "workers: 0 is not allowed; allowed: a number of at least 1"),
        ({"name": "a;b"}, "name: "),
        ({"total_ops": 31}, "(31) cannot be divided among 32"),
        ({"colour": "red"}, "colour: "),
    ],
)
def test_what_makes_no_workload_is_said_in_one_sentence(
    changes: dict[str, object], says: str
) -> None:
    with raises(UserError, says):
        TABLE_1["A"].with_(**changes)


@pytest.mark.parametrize("value", ["a;b", "a\nb"])
def test_a_value_that_a_config_string_cannot_hold_is_refused(value: str) -> None:
    with raises(ValidationError, "cannot be printed") as caught:
        SwAuth(username="u", password=value)
    assert value not in str(caught.value.errors()[0]["msg"])


def test_scaling_changes_the_largest_object() -> None:
    assert str(scaled(TABLE_1["C"], 1 / 8).sizes) == "u(1,16)MB"
    parts = (WeightedPart(low=1, high=64, weight=70), WeightedPart(low=64, high=128, weight=30))
    mixed = TABLE_1["A"].with_(sizes=CosbenchSizes(numbers=Weighted(parts=parts)))
    assert str(scaled(mixed, 2).sizes) == "h(1|128|70,64|256|30)KB"
    fixed = TABLE_1["A"].with_(sizes=CosbenchSizes(numbers=Constant(value=64)))
    assert str(scaled(fixed, 0.25).sizes) == "c(16)KB"
    with raises(UserError, do="whole number"):
        scaled(TABLE_1["C"], 1 / 7)
    with raises(UserError, do="number, 1 or more"):
        scaled(TABLE_1["C"], 1 / 256)
    with raises(UserError, "2147483647"):
        scaled(TABLE_1["C"].with_(sizes=parse_sizes("2147483647KB")), 2)


def test_sizes_as_people_write_them() -> None:
    assert str(parse_sizes("64KB")) == "c(64)KB"
    assert str(parse_sizes(" 1-16 MB")) == "u(1,16)MB"
    for wrong in ("", "64", "16-1MB", "0-4KB", "1-2TB", "-1KB", "2147483648B", "9" * 5000 + "B"):
        with raises(UserError, "is no object size"):
            parse_sizes(wrong)


def test_means() -> None:
    parts = (WeightedPart(low=1, high=3, weight=3), WeightedPart(low=10, high=10, weight=1))
    assert Weighted(parts=parts).mean == 4.0
    assert CosbenchSizes(numbers=Uniform(low=1, high=16), unit="MB").mean_bytes == 8.5e6
    with raises(ValidationError, "is below low"):
        Uniform(low=2, high=1)


def test_containers_are_named_so_that_s3_takes_them() -> None:
    assert TABLE_1["A"].container_prefix == "workloada"
    assert TABLE_1["A"].with_(name="My Web".replace(" ", "_")).container_prefix == "my-web"
    assert len(TABLE_1["A"].with_(name="X").container_prefix + "1") >= 3
    assert TABLE_1["A"].with_(prefix="given").container_prefix == "given"
