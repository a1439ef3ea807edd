"""Small CPU quota slices while testbeds are up, and the former size afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.sites.local import quota_slice
from testbed.sites.local.names import LocalNames
from testbed.sites.local.quota_slice import SLICE_US, claimed, put_back, shorten

MINE = LocalNames()
TESTS = LocalNames(state=Path("/elsewhere"))


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "sched_cfs_bandwidth_slice_us"
    path.write_text("5000\n")
    monkeypatch.setattr(quota_slice, "SETTING", path)
    monkeypatch.setattr(quota_slice, "CLAIMS", tmp_path / "run" / "quota-slice")
    return path


def test_the_last_one_puts_back_what_was_there(setting: Path) -> None:
    for places in (MINE, TESTS, MINE):
        assert shorten(places)
        assert int(setting.read_text()) == SLICE_US
    put_back(MINE)
    assert int(setting.read_text()) == SLICE_US
    assert (claimed(MINE), claimed(TESTS)) == (False, True)
    put_back(MINE)
    put_back(TESTS)
    assert setting.read_text().strip() == "5000"
    assert not quota_slice.CLAIMS.exists()
    put_back(TESTS)
    assert setting.read_text().strip() == "5000"


def test_what_somebody_else_has_set_stays(setting: Path) -> None:
    shorten(MINE)
    setting.write_text("2000")
    put_back(MINE)
    assert setting.read_text() == "2000"
    setting.write_text("300")
    assert shorten(MINE)
    put_back(MINE)
    assert setting.read_text() == "300"
    assert not claimed(MINE)


def test_after_a_crash_what_was_there_first_is_known(setting: Path) -> None:
    """The kill is after saving the former value, or after setting the new one."""
    quota_slice.CLAIMS.mkdir(parents=True)
    (quota_slice.CLAIMS / "before").write_text("5000")
    for now in ("5000", "500"):
        setting.write_text(now)
        assert shorten(MINE)
        assert int(setting.read_text()) == SLICE_US
    put_back(MINE)
    assert setting.read_text() == "5000"


def test_where_it_cannot_be_set_nothing_is_left(
    setting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting.unlink()
    assert not shorten(MINE)  # a kernel without quotas
    put_back(MINE)

    class ReadOnly(type(setting)):  # type: ignore[misc]
        def write_text(self, data: str, *more: object, **others: object) -> int:
            raise PermissionError(30, "Read-only file system")

    setting.write_text("5000")
    monkeypatch.setattr(quota_slice, "SETTING", ReadOnly(setting))
    assert not shorten(MINE)
    assert not quota_slice.CLAIMS.exists()
    assert setting.read_text() == "5000"
