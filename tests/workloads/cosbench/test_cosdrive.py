"""Written workloads keep their meaning: `cosdrive check` reads and the mock store runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from schemas.errors import UserError
from workloads.cosbench import driver
from workloads.cosbench.archive import read_archive
from workloads.cosbench.credentials import filled
from workloads.cosbench.driver import DriveOptions, run_here
from workloads.cosbench.tables import compare
from workloads.cosbench.workload import (
    AUTHS,
    STAGES,
    STORAGES,
    TABLE_1,
    CosbenchSizes,
    CosbenchWorkload,
    MockStorage,
    SwAuth,
    SwiftStorage,
    to_xml,
)

REAL = Path(__file__).parents[2] / "data" / "cosbench" / "real"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not driver.PROGRAM.exists(), reason="cosdrive: `make setup` builds it"),
]

sizes = st.builds(
    lambda low, more, unit: CosbenchSizes(low=low, high=low + more, unit=unit),
    st.integers(1, 500),
    st.integers(0, 500),
    st.sampled_from(["B", "KB", "MB"]),
)
mixes = (
    st.tuples(st.integers(0, 100), st.integers(0, 100))
    .map(sorted)
    .map(lambda cut: {"read": cut[0], "write": cut[1] - cut[0], "delete": 100 - cut[1]})
)
# A password may contain every printable character except ';'.
words = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x17F, exclude_characters=";"), min_size=1
).filter(str.isprintable)


@st.composite
def workloads(draw: st.DrawFn) -> CosbenchWorkload:
    return TABLE_1["A"].with_(
        **draw(mixes),
        name=draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True)),
        sizes=draw(sizes),
        workers=draw(st.integers(1, 512)),
        containers=draw(st.integers(1, 1000)),
        objects=draw(st.integers(1, 10_000)),
        runtime_s=draw(st.integers(1, 9999)),
        rampup_s=draw(st.integers(0, 99)),
        interval_s=draw(st.integers(1, 60)),
        storage=SwiftStorage(timeout=draw(st.integers(1, 60_000))),
        auth=SwAuth(username=draw(words), password=draw(words), auth_url="http://192.0.2.1/auth"),
    )


def settings_of(config: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in config.split(";") if part)


@settings(max_examples=60)
@given(workload=workloads(), count=st.integers(1, len(STAGES)))
def test_a_written_workload_is_read_back(workload: CosbenchWorkload, count: int) -> None:
    plan = driver.check(to_xml(workload, STAGES[:count]), "w.xml")
    assert plan["name"] == workload.name
    assert plan["storage"]["type"] == "swift"
    assert [stage["name"] for stage in plan["stages"]] == list(STAGES[:count])
    for stage in plan["stages"]:
        (work,) = stage["works"]
        if work["type"] == "normal":
            _same_main(workload, work)
        elif stage["name"] == "prepare":
            (operation,) = work["operations"]
            config = settings_of(operation["config"])
            assert config["sizes"] == str(workload.sizes)
            assert config["objects"] == f"r(1,{workload.objects})"
            assert work["workers"] == workload.prepare_workers


def _same_main(workload: CosbenchWorkload, work: dict[str, Any]) -> None:
    assert (work["workers"], work["runtime_s"]) == (workload.workers, workload.runtime_s)
    assert (work["rampup_s"], work["interval_s"]) == (workload.rampup_s, workload.interval_s)
    shares = {one["type"]: one["ratio_percent"] for one in work["operations"]}
    mix = {"read": workload.read, "write": workload.write, "delete": workload.delete}
    assert shares == {kind: ratio for kind, ratio in mix.items() if ratio}
    for operation in work["operations"]:
        config = settings_of(operation["config"])
        low = 1 if operation["type"] == "read" else workload.objects + 1
        assert config["objects"] == f"u({low},{low + workload.objects - 1})"
        assert config["containers"] == f"u(1,{workload.containers})"
        assert config["cprefix"] == workload.container_prefix


FILLED: dict[str, Any] = {
    **{"username": "u", "password": "p", "auth_url": "http://192.0.2.1/v3", "tenant_name": "t"},
    **{"service": "swift", "timeout": 5000, "token": "t", "storage_url": "http://192.0.2.1/v1/a"},
    **{"accesskey": "a", "secretkey": "c2VjcmV0", "path_style_access": True},
    **{"endpoint": "http://192.0.2.1:8080", "proxies_file": "/etc/hotbed/swift/web.json"},
    **{"size": 5, "delay": 5, "errors": 0.5},
}


@pytest.mark.parametrize("kind", [*STORAGES.values(), *AUTHS.values()])
def test_every_key_that_can_be_written_is_known(kind: type[BaseModel]) -> None:
    values = {key: FILLED[key] for key in kind.model_fields if key in FILLED}
    assert set(values) | {"type"} == set(kind.model_fields)
    element = "storage" if kind in STORAGES.values() else "auth"
    plan = driver.check(to_xml(TABLE_1["A"].with_(**{element: kind(**values)})), "w.xml")
    for key in values:
        assert f"{key}=" in plan[element]["config"]


@pytest.mark.parametrize("name", ["w1-mos-A", "w8-s3u"])
def test_the_xml_of_a_real_cosbench_is_understood(name: str) -> None:
    text = (REAL / name / "workload-config.xml").read_text()
    assert driver.check(text, name)["name"] == name.partition("-")[2]


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run A for 2 seconds on the mock store; three in ten of the main stage's operations fail."""
    small = TABLE_1["A"].with_(name="web", workers=4, runtime_s=2, objects=5)
    xml = to_xml(small.with_(storage=MockStorage(delay=1)))
    stage = '<workstage name="main">'
    xml = xml.replace(stage, stage + '<storage type="mock" config="delay=5;errors=0.3"/>')
    phases: list[tuple[str, float]] = []
    out = tmp_path_factory.mktemp("cosdrive") / "archive"

    def report(phase: str, share: float) -> None:
        phases.append((phase, share))

    return run_here(xml, "web.xml", out, DriveOptions(seed=5), report), phases


def test_an_archive_of_cosdrive_reads_like_a_real_one(driven: Any) -> None:
    drive, phases = driven
    archive = drive.archive
    assert [stage.name for stage in archive.stages] == list(STAGES)
    (main,) = archive.main
    assert [result.op for result in main.results] == ["read", "write", "delete"]
    assert phases[-1] == ("done", 1.0)
    assert archive.unread == ()
    assert archive.config is not None
    assert archive.driver is not None
    failed = 0
    for result in main.results:
        assert result.workers == 4
        assert sum(count for _, _, count in result.buckets) == result.operations
        (exact,) = [
            one for one in archive.measured if one.op == result.op and one.type == result.op
        ]
        assert exact.operations == result.operations
        assert sum(count for _, _, count in exact.buckets) == exact.operations
        failed += sum(exact.failed.values())
        # Lines of the series also hold uncounted operations: started before, or ended after.
        assert sum(point.operations for point in result.series) >= result.operations
        edge = result.percentiles_s[99]
        assert edge is not None
        assert exact.mean_s == pytest.approx(result.mean_s, abs=1e-5)
    assert failed > 0


def test_the_same_xml_from_both_has_the_same_shape(tmp_path: Path) -> None:
    """The recorded workload A on the mock store has the same stages and workers."""
    text = (REAL / "w1-mos-A" / "workload-config.xml").read_text()
    text = text.replace(
        'storage type="swift" config="timeout=30000"', 'storage type="mock" config="delay=1"'
    )
    text = text.replace('runtime="30" rampup="2"', 'runtime="1" rampup="0"')
    text = text.replace('auth type="swauth"', 'auth type="none"').replace(
        "username=test:tester;password=testing;auth_url=http://127.0.1.1:8080/auth/v1.0", ""
    )
    ours = run_here(filled(text, {}, "a.xml"), "a.xml", tmp_path / "archive").archive
    found = compare(read_archive(REAL, "w1"), ours)
    assert found.same_shape, (found.only_first, found.only_second, found.unlike)


def test_an_s3_workload_as_cosbenchs_web_form_writes_it() -> None:
    """Keys without a value are omitted: no HTTP proxy, and credentials from elsewhere."""
    text = """<workload name="s3-sample">
      <storage type="s3" config="accesskey=;secretkey=;proxyhost=;proxyport=;endpoint="/>
      <workflow><workstage name="init">
        <work type="init" workers="1" config="containers=r(1,2)"/>
      </workstage></workflow></workload>"""
    values = {"accesskey": "AK", "secretkey": "SK", "endpoint": "http://192.0.2.1"}
    made = filled(text, values, "w.xml")
    assert "accesskey=AK;secretkey=SK;proxyhost=;proxyport=;endpoint=http://192.0.2.1" in made
    assert driver.check(made, "w.xml")["storage"]["type"] == "s3"
    with pytest.raises(UserError):
        driver.check(made.replace("proxyhost=", "proxyhost=192.0.2.9"), "w.xml")
