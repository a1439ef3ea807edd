"""Secrets in workloads: masked, filled in, never shown."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from schemas.errors import UserError
from tests.errors import raises
from workloads.cosbench import credentials
from workloads.cosbench.credentials import found_in, from_file, from_json

REAL = Path(__file__).parents[2] / "data" / "cosbench" / "real"
XML = """<workload name="w">
  <auth type="swauth" config="username=u"/>
  <storage type="s3" config='secretkey=***;timeout=5'/>
  <workflow><workstage name="main" closuredelay="3">
    <work name="a" rampup="2" runtime="30"/><work name="b" runtime="40"/>
  </workstage><workstage name="end"><work name="c" totalOps="4"/></workstage></workflow>
</workload>"""


def test_kept_xml_is_masked() -> None:
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


@pytest.mark.parametrize(
    ("config", "kept", "secrets"),
    [
        ("'password=it\"s;url=http://x/?token=kept'", "'password=***;url=http://x/?token=kept'", 1),
        (
            '"username=u;password=a&amp;tail&#33;end;auth_url=http://h?a&amp;b"',
            '"username=u;password=***;auth_url=http://h?a&amp;b"',
            1,
        ),
        (
            "'username=it&apos;s&#59;pass&#119;ord&#x3D;hidden;timeout=5'",
            "'username=it&#39;s;password=***;timeout=5'",
            1,
        ),
        ('"password=first;password=second"', '"password=***;password=***"', 2),
    ],
)
def test_a_secret_is_masked_however_xml_writes_it(config: str, kept: str, secrets: int) -> None:
    text = f"<auth config={config}/>"
    assert credentials.masked(text) == f"<auth config={kept}/>"
    assert len(credentials.secrets(text)) == secrets
    assert credentials.masked(f"<auth config={kept}/>") == f"<auth config={kept}/>"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<workload>\n  </work>", "line 2, column 5"),
        (XML, ""),  # a mask stays
    ],
)
def test_broken_xml_or_a_mask_that_stays_is_a_mistake(text: str, said: str) -> None:
    with raises(UserError, said, where="w.xml"):
        credentials.filled(text, {}, "w.xml")


def test_filling_in_keeps_lines_comments_and_own_values() -> None:
    # Errors name lines of the user's file.
    text = """<!-- Workload
  of config="a user" -->
<workload name="w" xmlns:x="y"
          description='a > b, config="x"'>
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
    password = "password=p&amp;&#34;q"
    assert [line for line in made.splitlines() if line not in text.splitlines()] == [
        f'  <auth type="swauth" config="username=u;{password};timeout=5;auth_url=http://192.0.2.1"',
        "",  # the former second line of the config
        "  <storage type='s3' config=\"accesskey=AK\"/><!--",
    ]
    assert credentials.filled(made, {}, "w.xml") == made


def test_credentials_fill_masks_and_gaps() -> None:
    values = {"username": "v", "password": "p&q", "auth_url": "http://192.0.2.1/auth"}
    values |= {"accesskey": "AK", "secretkey": "SK", "endpoint": "http://192.0.2.1"}
    root = ET.fromstring(credentials.filled(XML, values, "w.xml"))
    auth, storage = root.find("auth"), root.find("storage")
    assert auth is not None
    assert storage is not None
    # The file's own values stay.
    assert auth.get("config") == "username=u;password=p&q;auth_url=http://192.0.2.1/auth"
    assert storage.get("config") == "secretkey=SK;timeout=5;accesskey=AK;endpoint=http://192.0.2.1"


def test_logs_are_scrubbed_and_times_are_planned() -> None:
    hidden = frozenset({"pass&word", "pass"})
    assert credentials.scrubbed("a pass&amp;word b pass&word c pass", hidden) == "a *** b *** c ***"
    assert credentials.planned_seconds(XML) == {"main": 43.0, "end": 0.0}
    assert credentials.planned_seconds("no xml") == {}


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
    whole = from_json(text.replace("}", ', "s3": true}'), "a testbed's own")
    assert set(whole.values) == {"auth_url", "username", "password"}
    with raises(UserError, do="chmod 600"):
        from_file(private(tmp_path / "t.json", "{}", 0o640))
    with raises(UserError, "cannot be read"):
        from_file(tmp_path / "none.json")


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


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"colour": "red"}', '{"key": 5}', '{"key": "s;t"}', '{"s3": "yes"}']
)
def test_a_wrong_file_is_refused_without_repeating_a_value(text: str) -> None:
    with raises(UserError, where="credentials here") as caught:
        from_json(text, "here")
    assert "s;t" not in str(caught.value)


def test_the_environment_has_the_values_that_the_file_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOTBED_COSBENCH_USERNAME", "env")
    monkeypatch.setenv("HOTBED_COSBENCH_ENDPOINT", "http://192.0.2.1")
    found = found_in(private(tmp_path / "t.json", '{"user": "file"}'))
    assert found.values == {"username": "file", "endpoint": "http://192.0.2.1"}
    monkeypatch.setenv("HOTBED_COSBENCH_PASSWORD", "a;b")
    with raises(UserError, "HOTBED_COSBENCH_PASSWORD"):
        found_in(None)
