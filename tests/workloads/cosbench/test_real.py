"""Real COSBench with its controller's behaviour: submitted, watched, cancelled, restarted, read."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from schemas.names import UnsafeNameError
from testbed.ssh import Completed, LocalShell
from tests.errors import raises
from tests.workloads.fake_controller import FakeController, serving
from workloads.cosbench.archive import Archive
from workloads.cosbench.credentials import Credentials
from workloads.cosbench.real import (
    ArchiveSource,
    ControllerClient,
    ControllerError,
    UnreachableError,
    collect,
    run,
)
from workloads.cosbench.workload import TABLE_1, to_xml
from workloads.errors import WorkloadError

RECORDED = Path(__file__).parents[2] / "data" / "cosbench" / "real" / "w1-mos-A"
XML = to_xml(TABLE_1["A"]).replace(
    'type="none"', 'type="swauth" config="username=u;password=testing;auth_url=http://192.0.2.1/a"'
)


@pytest.fixture
def fake(tmp_path: Path) -> FakeController:
    (tmp_path / "archive").mkdir()
    return FakeController(tmp_path / "archive", RECORDED)


@pytest.fixture
def address(fake: FakeController) -> Iterator[str]:
    with serving(fake) as address:
        yield address


class Clock:
    """Clock advanced only by sleep; `at` runs an action at a given time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: dict[float, object] = {}

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for when in sorted(self.at):
            if when <= self.now:
                self.at.pop(when)()  # type: ignore[operator]


def drive(
    address: str, fake: FakeController, out: Path, clock: Clock | None = None
) -> tuple[Archive, list[tuple[str, float]]]:
    reports: list[tuple[str, float]] = []
    time = clock or Clock()
    archive = run(
        ControllerClient(address),
        ArchiveSource(LocalShell("here"), str(fake.archive)),
        XML,
        out,
        lambda phase, share: reports.append((phase, share)),
        sleep=time.sleep,
        clock=time,
    )
    return archive, reports


def test_a_workload_runs_to_its_end(fake: FakeController, address: str, tmp_path: Path) -> None:
    archive, reports = drive(address, fake, tmp_path / "out")
    assert fake.submitted == [XML]
    assert archive.main[0].results[0].operations == 5990
    assert archive.finished
    phases = [phase for phase, _ in reports]
    assert phases[0] == "w1 s3-main"
    assert phases[-1] == "w1 finished: collecting"
    shares = [share for _, share in reports]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1


def test_the_copy_has_no_secrets_and_no_other_workloads(
    fake: FakeController, address: str, tmp_path: Path
) -> None:
    drive(address, fake, tmp_path / "out")
    kept = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*.*")}
    assert "testing" in (fake.archive / "w1-mos-A" / "workload.log").read_text()
    assert not [name for name, text in kept.items() if "testing" in text]
    assert kept["workload.log"] == "driver: logged in by ***\n"
    assert [line[:3] for line in kept["run-history.csv"].splitlines()] == ["Id,", "w1,"]
    assert {line[:3] for line in kept["workloads.csv"].splitlines()[1:]} == {"w1-"}


def test_files_that_are_written_late_are_waited_for_up_to_a_minute(
    fake: FakeController, address: str, tmp_path: Path
) -> None:
    fake.write_late = 1
    clock = Clock()
    clock.at = {12.0: lambda: fake.restart(keeps=True)}
    archive, _ = drive(address, fake, tmp_path / "out", clock)
    assert archive.main
    assert clock.now >= 12
    fake.write_late = 100  # the archive is another controller's
    with raises(WorkloadError, "w2", "60 s"):
        drive(address, fake, tmp_path / "other")
    fake.drivers = {}
    with raises(UserError, "has no drivers"):
        drive(address, fake, tmp_path / "none")
    assert len(fake.submitted) == 2


def test_a_terminated_workload_keeps_its_results(
    fake: FakeController, address: str, tmp_path: Path
) -> None:
    fake.states = ("PROCESSING", "TERMINATED")
    archive, reports = drive(address, fake, tmp_path / "out")
    assert archive.stages
    assert "terminated" in reports[-1][0]


def test_a_restarted_controller_that_had_finished(
    fake: FakeController, address: str, tmp_path: Path
) -> None:
    """The controller is down for two requests, then back with the workload in its archive."""
    fake.states = ("PROCESSING",) * 3 + ("FINISHED",)
    clock = Clock()

    def down() -> None:
        fake.failures = [503, 503, 503]
        fake.restart(keeps=True)

    clock.at = {3.0: down}
    archive, reports = drive(address, fake, tmp_path / "out", clock)
    assert archive.finished
    assert any("silent" in phase for phase, _ in reports)


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (lambda fake: fake.restart(keeps=False), "no longer knows it"),
        (lambda fake: fake.reuse(), "given its id to another one"),
        (lambda fake: fake.failures.extend([503] * 200), "503"),
    ],
    ids=["lost", "reused", "away"],
)
def test_a_controller_that_lost_a_workload_or_stays_away(
    fake: FakeController, address: str, tmp_path: Path, happens: Any, says: str
) -> None:
    fake.states = ("PROCESSING",)
    clock = Clock()
    clock.at = {5.0: lambda: happens(fake)}
    with raises(WorkloadError, says):
        drive(address, fake, tmp_path / "out", clock)


def test_an_interruption_cancels_it(fake: FakeController, address: str, tmp_path: Path) -> None:
    fake.states = ("PROCESSING",)
    clock = Clock()

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.at = {5.0: interrupt}
    with pytest.raises(KeyboardInterrupt):
        drive(address, fake, tmp_path / "out", clock)
    assert fake.cancelled == ["w1"]
    assert not (tmp_path / "out").exists()


def test_errors_come_with_status_200(fake: FakeController, address: str) -> None:
    controller = ControllerClient(address)
    fake.answers["submit.action"] = ["work ratios do not sum to 100", "Bad Request"]
    with pytest.raises(UserError):
        controller.submit(XML)
    with raises(ControllerError, "bad request"):
        controller.submit(XML)
    assert controller.workload("w7") is None
    fake.answers["index.action"] = [
        "Internal Error\njava.lang.IllegalStateException: closed\n\tat a.b(C.java:1)\n",
        "<!DOCTYPE html>\n<html>log in</html>",
        "what?",
    ]
    with raises(ControllerError, "failed: java.lang.IllegalStateException"):
        controller.index()
    with raises(ControllerError, "a web page"):
        controller.index()
    with raises(ControllerError, "answered: what?"):
        controller.index()
    assert controller.index()[0] == fake.drivers


def test_a_wrong_password_is_the_users_mistake_and_in_no_message(
    fake: FakeController, address: str
) -> None:
    wrong = ControllerClient(address, Credentials({"username": "me", "password": "sesame"}))
    with raises(UserError, "does not take user 'me'") as caught:
        wrong.index()
    assert "sesame" not in str(caught.value)
    assert "sesame" in fake.paths[-1]
    fake.failures = [500]
    with raises(UnreachableError, "HTTP 500") as caught_too:
        wrong.index()
    assert "sesame" not in str(caught_too.value)


@pytest.mark.parametrize("given", ["", "ftp://a", "http://", "http://u:p@h", "http://h:x"])
def test_addresses(given: str) -> None:
    with pytest.raises(UserError):
        ControllerClient(given)
    assert ControllerClient("h").address == "http://h:19088"
    assert ControllerClient("https://[::1]:5/x").address == "https://[::1]:5"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with raises(UnreachableError, "http://127.0.0.1"):
            ControllerClient(f"127.0.0.1:{taken.getsockname()[1]}").index()


def test_a_folder_that_find_cannot_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = tmp_path / "bin" / "find"
    find.parent.mkdir()
    find.write_text(f'#!/bin/sh\n{shutil.which("find")} "$@"\necho denied >&2\nexit 1\n')
    find.chmod(0o755)
    monkeypatch.setenv("PATH", f"{find.parent}:{os.environ['PATH']}")
    (tmp_path / "archive" / "w1-x").mkdir(parents=True)
    (tmp_path / "archive" / "w1-x" / "x.csv").write_text("four")
    source = ArchiveSource(LocalShell("here"), str(tmp_path / "archive"))
    assert source.sizes() == {"w1-x/x.csv": 4}
    with raises(UserError, "is no folder"):
        ArchiveSource(LocalShell("here"), str(tmp_path / "none")).sizes()


class LyingShell:
    """Node that lists `name` as a file of w1 and has content for it."""

    node = "n1"

    def __init__(self, name: str) -> None:
        self.listed = f"4 {name}\0".encode()

    def run(self, argv: Sequence[str], **_: object) -> Completed:
        answer = self.listed if "find" in " ".join(argv) else b"evil"
        return Completed(tuple(argv), 0, answer, b"")


@pytest.mark.parametrize("name", ["w1-x/../../evil", "w1-x//evil", "w1-x/\x1b[2J"])
def test_a_node_writes_no_file_outside_the_copy(tmp_path: Path, name: str) -> None:
    source = ArchiveSource(LyingShell(name), "/archive")  # type: ignore[arg-type]
    with pytest.raises(UnsafeNameError):
        collect(source, "w1", tmp_path / "a" / "out", sleep=lambda _: None)
    assert list(tmp_path.rglob("*")) == []
