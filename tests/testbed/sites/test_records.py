"""Records of sites: intact at any moment, one process at a time, private to their owner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.errors import UserError
from testbed.sites.contract import SiteError
from testbed.sites.records import Records, default_root
from tests.errors import raises


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records("somewhere", tmp_path)


def test_what_is_saved_is_read_again(records):
    with records.open("mine") as record:
        assert record.data == {}
        record.data["hosts"] = ["a"]
        record.save()
    assert records.read("mine") == {"hosts": ["a"]}
    assert records.names() == ("mine",)
    with records.open("mine") as record:
        assert record.data == {"hosts": ["a"]}
    assert records.folder("mine").stat().st_mode & 0o777 == 0o700
    assert (records.folder("mine") / "record.json").stat().st_mode & 0o777 == 0o600
    with records.open("nothing"):
        pass
    assert records.names() == ("mine",)
    assert records.read("nothing") is None
    assert records.entries("nothing") == []
    records.remove("nothing")


def test_two_processes_on_one_testbed(records):
    # A lock belongs to an open file: a second opening is refused like another process's.
    with (
        records.open("mine"),
        records.open("yours"),
        pytest.raises(SiteError) as busy,
        records.open("mine", timeout_s=0.0),
    ):
        pass
    assert "'mine'" in str(busy.value)
    assert busy.value.retry_after_s is not None


def test_the_journal_keeps_its_order_and_survives_a_torn_line(records):
    with records.open("mine") as record:
        record.journal("ask", name="lease")
        with (record.folder / "journal.jsonl").open("ab") as file:
            file.write(b'{"entry": "made", "id"')
        record.journal("made", id="7")
        assert record.entries() == [
            {"entry": "ask", "name": "lease"},
            {"entry": "made", "id": "7"},
        ]
    assert records.entries("mine")[-1]["id"] == "7"
    assert records.names() == ("mine",)


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"version": 99})])
def test_a_record_changed_by_hand_is_refused(records, text):
    with records.open("mine") as record:
        record.save()
    (records.folder("mine") / "record.json").write_text(text)
    with raises(UserError, where="record.json"):
        records.read("mine")


def test_what_is_no_name_leads_nowhere(records):
    assert records.read("../x") is None
    assert records.entries("../x") == []
    with raises(UserError, "no name of a testbed"), records.open("../x"):
        pass


def test_in_chameleons_hub_it_is_where_the_server_s_end_leaves_it(monkeypatch, tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    monkeypatch.delenv("HOTBED_STATE", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OS_KEYPAIR_PRIVATE_KEY", str(work / ".ssh" / "id_rsa"))
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "t")
    assert default_root() == work / ".hotbed"
    at_home = home / ".local" / "state" / "hotbed"
    # Not in a hub; a hub that keeps the home folder; a hub without a (valid) folder.
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN")
    assert default_root() == at_home
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "t")
    for key in (str(home / ".ssh" / "id_rsa"), "", "id_rsa", str(tmp_path / "gone/.ssh/id_rsa")):
        monkeypatch.setenv("OS_KEYPAIR_PRIVATE_KEY", key)
        assert default_root() == at_home
