"""Secrets in workloads: masked, filled in, never shown."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from schemas.errors import UserError
from tests.errors import raises
from workloads.cosbench import credentials
from workloads.cosbench.credentials import found_in, from_environment, from_file, from_json

REAL = Path(__file__).parents[2] / "data" / "cosbench" / "real"
XML = """<workload name="w">
  <auth type="swauth" config="username=u"/>
  <storage type="s3" config='secretkey=***;timeout=5'/>
  <workflow><workstage name="main" closuredelay="3">
    <work name="a" rampup="2" runtime="30"/><work name="b" runtime="40"/>
  </workstage><workstage name="end"><work name="c" totalOps="4"/></workstage></workflow>
</workload>"""


def test_what_cosbench_keeps_is_masked() -> None:
    swift = (REAL / "w1-mos-A" / "workload-config.xml").read_text()
    s3 = (REAL / "w8-s3u" / "workload-config.xml").read_text()
    assert "password=testing" in swift
    assert "secretkey=testing" in s3
    for text in (swift, s3):
        masked = credentials.masked(text)
        assert "testing" not in masked
        assert masked.count("***") >= text.count("testing")
        assert credentials.masked(masked) == masked
        assert len(masked.splitlines()) == len(text.splitlines())
    assert credentials.secrets(s3) == {"test:tester", "testing"}
    assert credentials.secrets("no xml") == set()


def test_single_quotes_and_other_keys() -> None:
    text = "<auth config='password=it\"s;url=http://x/?token=kept'/>"
    assert credentials.masked(text) == "<auth config='password=***;url=http://x/?token=kept'/>"


def test_no_part_of_a_secret_is_left_behind_an_entity() -> None:
    text = '<auth config="username=u;password=a&amp;tail&#33;end;auth_url=http://h?a&amp;b"/>'
    kept = '<auth config="username=u;password=***;auth_url=http://h?a&amp;b"/>'
    assert credentials.masked(text) == kept


def test_a_secret_is_masked_however_xml_writes_it() -> None:
    text = "<auth config='username=it&apos;s&#59;pass&#119;ord&#x3D;hidden;timeout=5'/>"
    assert credentials.secrets(text) == {"hidden"}
    kept = "<auth config='username=it&apos;s;password=***;timeout=5'/>"
    assert credentials.masked(text) == kept
    assert credentials.masked(kept) == kept


def test_every_secret_of_a_config_is_hidden() -> None:
    text = '<workload name="w"><auth config="password=first;password=second"/></workload>'
    assert credentials.secrets(text) == {"first", "second"}
    again = text.replace("first", "***")
    with pytest.raises(UserError):
        credentials.filled(again, {}, "w.xml")
    assert credentials.filled(again, {"password": "p"}, "w.xml") == text.replace("first", "p")


def test_blanks_that_were_written_as_references_stay() -> None:
    text = '<workload name="w"><auth config="password=***;x=a&#10;b&#9;c&#13;d"/></workload>'
    made = credentials.filled(text, {"password": "p"}, "w.xml")
    assert made == text.replace("***", "p")


def test_what_is_filled_in_leaves_all_else_where_it_was() -> None:
    # Errors name lines of the user's file.
    text = """<!-- Workload
  of config="a user" -->
<workload name="w"
          description='it says config="x"'>
  <auth type="swauth" config="username=u;
     password=***;timeout=5;"
     />
  <storage type='s3'/><!--
  --><workflow config="oprefix=a&lt;b"/>
</workload>
"""
    values = {"password": 'p&"q', "accesskey": "AK", "auth_url": "http://192.0.2.1"}
    made = credentials.filled(text, values, "w.xml")
    assert len(made.splitlines()) == len(text.splitlines())
    password = "password=p&amp;&quot;q"
    assert [line for line in made.splitlines() if line not in text.splitlines()] == [
        f'  <auth type="swauth" config="username=u;{password};timeout=5;auth_url=http://192.0.2.1"',
        "",  # the former second line of the config
        "  <storage type='s3' config=\"accesskey=AK\"/><!--",
    ]
    assert credentials.filled(text, {"password": "p"}, "w.xml").count("\n") == text.count("\n")
    assert credentials.filled(made, {}, "w.xml") == made


def test_what_is_no_pair_stays_to_be_refused() -> None:
    text = '<workload name="w"><auth type="swauth" config="usernameu;username=v"/></workload>'
    made = credentials.filled(text, {"password": "p"}, "w.xml")
    assert 'config="usernameu;username=v;password=p"' in made


def test_a_document_type_is_refused_before_anything_is_filled_in() -> None:
    text = '<?xml version="1.0"?>\n<!DOCTYPE w [<!ENTITY e "x">]>\n<workload name="&e;"/>'
    with raises(UserError, "line 2", where="w.xml"):
        credentials.filled(text, {}, "w.xml")


def test_credentials_fill_what_is_masked_or_missing() -> None:
    values = {"username": "v", "password": "p&q", "auth_url": "http://192.0.2.1/auth"}
    values |= {"accesskey": "AK", "secretkey": "SK", "endpoint": "http://192.0.2.1"}
    root = ET.fromstring(credentials.filled(XML, values, "w.xml"))
    auth, storage = root.find("auth"), root.find("storage")
    assert auth is not None
    assert storage is not None
    # The file's own values stay.
    assert auth.get("config") == "username=u;password=p&q;auth_url=http://192.0.2.1/auth"
    assert storage.get("config") == "secretkey=SK;timeout=5;accesskey=AK;endpoint=http://192.0.2.1"


def test_a_mask_that_stays_is_an_error() -> None:
    with raises(UserError, where="w.xml"):
        credentials.filled(XML, {}, "w.xml")


def test_no_xml_is_said_with_line_and_column() -> None:
    with raises(UserError, "line 2, column 5", where="w.xml"):
        credentials.filled("<workload>\n  </work>", {}, "w.xml")


def test_planned_times() -> None:
    assert credentials.planned_seconds(XML) == {"main": 43.0, "end": 0.0}
    assert credentials.planned_seconds("no xml") == {}


def test_logs_are_scrubbed() -> None:
    hidden = frozenset({"pass&word", "pass"})
    assert credentials.scrubbed("a pass&amp;word b pass&word c pass", hidden) == "a *** b *** c ***"


def private(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_tenants_file(tmp_path: Path) -> None:
    text = '{"auth_url": "http://192.0.2.1/a", "user": "t:u", "key": "k", "proxies": ["192.0.2.1"]}'
    found = from_file(private(tmp_path / "t.json", text))
    assert found.values == {"auth_url": "http://192.0.2.1/a", "username": "t:u", "password": "k"}
    assert found.proxies == ("192.0.2.1",)
    assert "'k'" not in repr(found)


def test_a_testbed_s_tenant_file_is_credentials() -> None:
    text = '{"auth_url": "http://192.0.2.1/a", "user": "t:t", "key": "k", "s3": true}'
    assert set(from_json(text, "x").values) == {"auth_url", "username", "password"}
    with raises(UserError, "'s3' is not known"):
        from_json('{"s3": "yes"}', "x")


def test_proxies_are_for_cosdrive() -> None:
    text = (
        '{"auth_url": "http://192.0.2.1:8080/a", "proxies": ["192.0.2.1", "http://192.0.2.2:81"]}'
    )
    found = from_json(text, "here").for_cosdrive()
    assert found["proxies"] == "192.0.2.1:8080,192.0.2.2:81"
    xml = '<workload><auth type="none"/><storage type="swift"/></workload>'
    assert 'config="proxies=192.0.2.1:8080,192.0.2.2:81"' in credentials.filled(xml, found, "w.xml")
    # The proxies are given only once.
    own = xml.replace('type="swift"', 'type="swift" config="proxies_file=/p.json"')
    assert "proxies=" not in credentials.filled(own, found, "w.xml")
    assert (
        "proxies" not in from_json(text.replace(', "http://192.0.2.2:81"', ""), "").for_cosdrive()
    )


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with raises(UserError, do="chmod 600"):
        from_file(private(tmp_path / "t.json", "{}", 0o640))
    with raises(UserError, "cannot be read"):
        from_file(tmp_path / "none.json")


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"colour": "red"}', '{"key": 5}', '{"key": "s;t"}', '{"proxies": "a"}']
)
def test_what_holds_no_credentials_is_refused_without_repeating_it(text: str) -> None:
    with raises(UserError, where="credentials here") as caught:
        from_json(text, "here")
    assert "s;t" not in str(caught.value)


def test_the_environment_fills_in_what_the_file_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTBED_COSBENCH_USERNAME", "env")
    monkeypatch.setenv("HOTBED_COSBENCH_ENDPOINT", "http://192.0.2.1")
    found = found_in(private(tmp_path / "t.json", '{"user": "file"}'))
    assert found.values == {"username": "file", "endpoint": "http://192.0.2.1"}
    monkeypatch.setenv("HOTBED_COSBENCH_PASSWORD", "a;b")
    with raises(UserError, "HOTBED_COSBENCH_PASSWORD"):
        from_environment()
