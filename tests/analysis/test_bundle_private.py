"""What must not leave with a bundle: found wherever it stands, replaced the same everywhere."""

from __future__ import annotations

import base64
import ipaddress
import json
import zlib
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.bundle import scan as scanning
from analysis.bundle.redact import Redactor, opaque_columns
from analysis.bundle.scan import findings, scan, words_of_this_machine
from schemas.errors import UserError

# Put together here, so that no scan of this repository takes them for what they look like.
SECRETS = {
    "a private key": "-----BEGIN OPENSSH PRIVATE " + "KEY-----\nb3BlbnNzaA",
    "an OpenStack credential": "export OS_PASS" + "WORD=hunter22",
    "a token of an OpenStack service": "gAAAA" + "AB" + "k3J9_x" * 9,
    "a signed web token": "ey" + "Jhbd0123456.ey" + "Jzdd0123456.c2lnbmVkMTIz",
    "an access key of a service": "AKIA" + "ABCDEFGHIJKLMNOP",
    "a key of Ceph": "key = AQ" + "Bx4z/+0123456789abcdefghijklmnopqrst" + "==",
    "a password in an address": "https://me:s3cr" + "et@files.example.org/x",
    "a bearer's token": "Authorization: Bear" + "er abcdefghijklmnop1234",
    "a password or secret": '{"admin_pass' + 'word": "correcthorse"}',
}
MORE_SECRETS = (
    '{"access_key": "x", "secret_' + 'key": "wJalrXUtnFEMI7MDENGbPxRfiCY"}',
    "aws_secret_access_" + "key = wJalrXUtnFEMI7MDENGbPxRfiCY",
    'config="username=t:u;pass' + 'word=hunter22;auth_url=x"',
    "  pass" + "word: hunter22",
    "DB_PASS" + "WORD=hunter22",
    '{"pass' + 'word": "Str0ng$Pass"}',
    '{\\"pass' + 'word\\": \\"Str0ng$Pass\\"}',
    "pass" + "word: 'correct horse; battery*'",
    '"application_credential_sec' + 'ret": "a$bcdefgh1"',
    "application_credential_sec" + "ret: abcDEF123456",
    "client_sec" + "ret=abcDEF123456",
    "admin_tok" + "en = 0123abcd4567",
    '{"admin' + 'Pass": "zD4kb7QwErTy"}',
    '{"access' + 'Token": "abcdefghijkl"}',
    '{"auth' + 'Token": "abcdefghijkl"}',
    '{"user' + 'Password": "abcdefghijkl"}',
    '{"api' + 'Key": "abcdefghijkl"}',
    "PGPASS" + "WORD=hunter22",
    "MYSQL_" + "PASS=hunter22",
    "ansible_become_" + "pass: hunter22",
    '"ansible_ssh_' + 'pass": "hunter22"',
    "settings['pass" + "word'] = 'hunter22'",
    "http://localhost:8888/?tok" + "en=8f3a77c1d5e4b2a9",
    "curl -s -u admin:" + "hunter22 http://x",
    '["curl", "-u", "admin:' + 'hunter22"]',
    "sshpass -p " + "secretly ssh x",
    "tool --pass" + "word hunter22",
    '["tool", "--os-pass' + 'word", "hunter22"]',
    "machine x login alice pass" + "word hunter2",
)
ELSEWHERE = {
    "an OpenStack credential": (
        "OS_PASS" + 'WORD="$3cret99"',
        "('OS_PASS" + "WORD', 'hunter22')",
        "environ['OS_PASS" + "WORD'] = 'hunter22'",
    ),
    "a token of an OpenStack service": (
        "AUTH_" + "tk" + "0123456789abcdef" * 2,
        "X-Auth-" + "Key: testing",
        "headers['X-Auth-" + "Token'] = 'abcdefgh'",
        "{'X-Storage-" + "Token': 'abcdefgh'}",
    ),
    "a bearer's token": ("Authorization: Bas" + "ic YWxpY2U6aHVudGVyMg==",),
    "a private key": ("-----BEGIN PGP PRIVATE " + "KEY BLOCK-----",),
    "an access key of a service": ("ASIA" + "ABCDEFGHIJKLMNOP",),
}
PRIVATE = {
    "a machine's address": ["10.42.0.7", "192.168.1.20", "172.20.3.4", "129.114.109.8"],
    "a machine's IPv6 address": ["fd00:1::7", "fe80::1c2b:3d4e", "fd12:0:0:0:0:0:0:5"],
    "a hardware address": ["52:54:00:ab:cd:ef"],
    "a home folder": [
        *("/ho" + "me/user1/x", "/Us" + "ers/user1/y", "/us" + "ers/user1", "/root/.ssh"),
        *("/export/ho" + "me/user1", "/mnt/ho" + "me/user1/z", "/ho" + "me2/user1"),
    ],
    "a mail address": ["user1@uni-nowhere.edu"],
}
WITHIN = {
    "%2F10.0.0.5%2F": "%2F192.0.2.1%2F",
    "IP 10.0.0.5.6789 > 10.0.0.6.22: Flags": "IP 192.0.2.1.6789 > 192.0.2.2.22: Flags",
    "fd12:0:0:0:0:0:0:5:6789": "2001:db8::1:6789",
    "64 bytes from fd00::12: icmp_seq=1": "64 bytes from 2001:db8::1: icmp_seq=1",
    "fd12:3456::5: {": "2001:db8::1: {",
    "at ip-10-0-0-5.ec2.internal": "at host-1.ec2.internal",
    "host-192-168-3-4 is up": "host-1 is up",
    "ssh root@tank1.cs.uni-nowhere.edu uptime": "ssh someone@example.org uptime",
    "node osd0 (tank2.cs.uni-nowhere.edu) cannot": "node osd0 (host-1) cannot",
    "connect to host tank2.cs.uni-nowhere.edu port 22": "connect to host host-1 port 22",
    '{"address": "tank2.cs.uni-nowhere.edu"}': '{"address": "host-1"}',
    '{\\"hostname\\": \\"tank-2.lan\\"}': '{\\"hostname\\": \\"host-1\\"}',
    "fatal: [tank2.cs.uni-nowhere.edu]: UNREACHABLE!": "fatal: [host-1]: UNREACHABLE!",
    "GET http://tank2.cs.uni-nowhere.edu:8080/v1": "GET http://host-1:8080/v1",
    "on server1.uni-nowhere.edu: up": "on host-1: up",
    "host: node1.maas": "host: host-1",
    "ssh -p 22 -J a@b.nowhere.edu -i x c.nowhere.edu y": (
        "ssh -p 22 -J someone@example.org -i x host-1 y"
    ),
    "['ssh', '-J', 'b.nowhere.edu', 'c']": "['ssh', '-J', 'host-1', 'c']",
    "Connection to tank2.uni-nowhere.edu closed": "Connection to host-1 closed",
}
HARMLESS = [
    "ceph 16.2.15, fio 3.33, 1.2.3.4 of a tool, 127.0.0.1, 0.0.0.0, 255.255.255.0",
    '{"t_s": 2.4918001145124435e-05, "values": [0.1, 10.25, 192.168], "at": "12:30:45"}',
    "systemd unit hotbed@1.service, git@github.com, someone@example.org, 192.0.2.7",
    "std::vector, a::b, 2026-11-21T21:45:00.014293+0000, dead:beef",
    "password: ***, token=None, /rooted/x, $HOME/x, secret: '' ",
    "username=t:u;password=***;auth_url=x, password = make_password(2), secretkey=***",
    "the password: correct, tokens=1234567, token_rate: 1000000",
    "http://localhost:8080/a, user:pass in prose",
    "password: $PASSWORD, password='{{ vault }}', \"password\": \"********\", token='${TOKEN}'",
    "OS_PASSWORD=$OS_PASSWORD_INPUT, ('OS_USERNAME', 'OS_PASSWORD'), OS_PASSWORD: <yours>",
    "token: 1.25e+06, token = tokens[0], secret = hashlib.sha256(text), --password PASSWORD",
    "OID 10.0.0.1.6.1, %2F16.2.15, sshpass -p $PASS, curl -u $USER:$PASS x, host = self.a.de",
    "host download.ceph.com, https://docs.example.org:443/x, ssh run.the.py, host = args.local",
    "address = node.network.ip, server = found.server.id, server: osd.0.log.gz, host=x.y.ok",
    "serverless.lab.nowhere.edu, hosts.lab.nowhere.edu, sshd.lab.nowhere.edu, servers.a.de",
    "ssh -i /x/key.lab.nowhere.edu osd0",
    "server: www.zenodo.org, node osd0 (osd0), bypass: firsthalf1, compass = abcdef123",
    "headers = {'X-Auth-Token': self._token, 'X-Auth-Key': endpoint['user']}",
    "by X-Auth-Key, answered by X-Auth-Token",
    "'username=u;password=' + secret + ';auth_url='",
    'access = "accesskey=" + words[1] + ";keyring="',
    'environ["OS_PASSWORD"] = "$PASSWORD"; environ["OS_USERNAME"] == ""',
    "environ['OS_PROJECT_NAME'] = project1, {'OS_USERNAME': config.USER, 'OS_PASSWORD': secret}",
    "GET /v3/users/abc, the key aq, 'asia' and curl",
]


@pytest.mark.parametrize("what", SECRETS)
def test_a_secret_is_found_and_never_replaced(what: str) -> None:
    data = f"first line\nthen {SECRETS[what]} here".encode()
    assert what in [name for name, _ in findings(Redactor({}).data(data))]


@pytest.mark.parametrize("text", MORE_SECRETS)
def test_a_password_is_found_however_it_is_written(text: str) -> None:
    assert "a password or secret" in [name for name, _ in findings(text.encode())]


@pytest.mark.parametrize(
    ("what", "text"), [(what, text) for what, texts in ELSEWHERE.items() for text in texts]
)
def test_a_secret_is_found_for_what_it_is(what: str, text: str) -> None:
    assert what in [name for name, _ in findings(f"then {text} here".encode())]


@pytest.mark.parametrize("text", WITHIN)
def test_what_is_private_is_found_within_what_it_stands_in(text: str) -> None:
    assert list(findings(text.encode()))
    made = Redactor({}).data(text.encode())
    assert made.decode() == WITHIN[text]
    assert not list(findings(made))


@pytest.mark.parametrize(
    ("what", "text"), [(what, text) for what, texts in PRIVATE.items() for text in texts]
)
def test_what_is_private_is_found_and_replaced(what: str, text: str) -> None:
    for around in (
        "{}",
        '{{"a": "{}"}}',
        "ssh: {} said",
        "x={},y",
        "[{}]",
        "\n{}\n",
        "\\u001b[32m{}\\u001b[39m",
        '{{"text": "said\\n{0}\\tand {0}"}}',
        "b'\\x1b{}'",
        "{}: x",
        "\x1b[K{}",
        "\\u001b[2K{}",
    ):
        data = around.format(text).encode()
        assert what in [name for name, _ in findings(data)], around
        made = Redactor({}).data(data)
        assert text.encode() not in made
        assert not list(findings(made))
        assert Redactor({}).data(b"a " + made) == b"a " + made


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_harmless_stays(text: str) -> None:
    assert Redactor({}).data(text.encode()) == text.encode()
    assert not list(findings(text.encode()))


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 2**24 - 1), min_size=1, max_size=8),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=8),
)
def test_addresses_go_the_same_way_everywhere_and_numbers_stay(
    hosts: list[int], numbers: list[float]
) -> None:
    named = [str(ipaddress.IPv4Address(10 * 2**24 + host)) for host in hosts]
    redactor = Redactor({})
    first = json.loads(redactor.data(json.dumps({"hosts": named, "numbers": numbers}).encode()))
    second = json.loads(redactor.data(json.dumps(named[::-1]).encode()))
    assert first["numbers"] == numbers
    assert first["hosts"] == second[::-1]
    assert len(set(first["hosts"])) == len(set(named))
    assert not list(findings(json.dumps([first, second]).encode()))


def test_folders_and_host_names_are_replaced_as_whole_words() -> None:
    redactor = Redactor(
        {"/srv/lab/hotbed": "$HOTBED", "/srv/lab": "$LAB"}, {"tank.cs.nowhere.edu": "host-1"}
    )
    text = b"/srv/lab/hotbed/x /srv/lab/y /srv/laboratory tank.cs.nowhere.edu mytank.cs.nowhere.edu"
    assert redactor.data(text) == (b"$HOTBED/x $LAB/y /srv/laboratory host-1 mytank.cs.nowhere.edu")
    assert redactor.counts == {"folders": 2, "host names": 1}


def test_a_host_name_is_found_at_the_start_of_a_line_within_json() -> None:
    redactor = Redactor({}, {"tank.cs.nowhere.edu": "host-1"})
    text = json.dumps({"text": "lost:\ntank.cs.nowhere.edu"}).encode()
    assert json.loads(redactor.data(text)) == {"text": "lost:\nhost-1"}


def test_an_address_joined_by_an_underscore_is_one() -> None:
    assert Redactor({}).data(b"mon_10.0.0.9_6789 v2:10.0.0.9:3300") == (
        b"mon_192.0.2.1_6789 v2:192.0.2.1:3300"
    )


def test_names_of_files_and_of_columns_are_looked_at(tmp_path: Path) -> None:
    table = pd.DataFrame({"load of 10.0.0.5": [0.5]})
    table.to_parquet(tmp_path / "x.parquet", index=False)
    found = scan({"logs/10.0.0.6.parquet": tmp_path / "x.parquet"}, {})
    assert [one.what for one in found] == [
        "a machine's address, in the file's name",
        "a machine's address",
    ]


def test_columns_are_called_otherwise(tmp_path: Path) -> None:
    """Also in a file that says them nowhere else, as pandas does in its notes."""
    table = pa.table({"load of 10.0.0.5": [0.5], "t_s": [1.0]})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    found = scan({"x.parquet": tmp_path / "x.parquet"}, {})
    assert [one.what for one in found] == ["a machine's address"]
    made = Redactor({}).parquet(tmp_path / "x.parquet")
    assert made is not None
    (tmp_path / "made.parquet").write_bytes(made)
    again = pd.read_parquet(tmp_path / "made.parquet")
    assert again.to_dict("list") == {"load of 192.0.2.1": [0.5], "t_s": [1.0]}
    assert not scan({"made.parquet": tmp_path / "made.parquet"})


def test_a_table_whose_texts_are_none_is_told(tmp_path: Path) -> None:
    lengths, letters = b"\0\0\0\0\2\0\0\0", b"\xff\xfe"
    column = pa.Array.from_buffers(pa.string(), 1, [None, *map(pa.py_buffer, (lengths, letters))])
    pyarrow.parquet.write_table(pa.table({"node": column}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=r"x\.parquet: is no Parquet file that can be read"):
        Redactor({}).parquet(tmp_path / "x.parquet")
    found = scan({"x.parquet": tmp_path / "x.parquet"}, {})
    assert [one.what for one in found] == ["a table that cannot be read"]


def test_a_column_whose_name_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pa.table({"zzzz": [1]}), file, store_schema=False)
    file.write_bytes(file.read_bytes().replace(b"zzzz", b"z\xff\xfez"))
    for read in (Redactor({}).parquet, opaque_columns):
        with pytest.raises(UserError, match=r"x\.parquet: is no Parquet file that can be read"):
            read(file)
    found = scan({"x.parquet": file}, {})
    assert [one.what for one in found] == ["a table that cannot be read"]


def test_two_columns_of_one_name_are_told(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array(["10.0.0.5"])], names=["node", "node"])
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(UserError, match="two of its columns have one name"):
        Redactor({}).parquet(tmp_path / "x.parquet")
    assert scan({"x.parquet": tmp_path / "x.parquet"}, {})


NOTE = {"of": "10.0.0.5"}


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": pa.array([{"load of 10.0.0.5": 1.0}])}),
        pa.table({"a": pa.array([[{"load of 10.0.0.5": 1.0}]])}),
        pa.table([[1]], pa.schema([pa.field("a", pa.int64())], NOTE)),
        pa.table([[1]], pa.schema([pa.field("a", pa.int64(), metadata=NOTE)])),
        pa.table({"a": pa.array([["at 10.0.0.5"]])}),
        pa.table({"a": [b"at 10.0.0.5"]}),
    ],
)
def test_a_table_is_looked_into_wherever_it_says_something(tmp_path: Path, table: pa.Table) -> None:
    """Where nobody can look into a column that is told."""
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    assert len(scan({"x.parquet": tmp_path / "x.parquet"}, {})) == 1


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG file of nothing but these chunks."""
    written = [
        len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)
        for kind, body in (*chunks, (b"IEND", b""))
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


FLATE = b" /Filter /FlateDecode"


def pdf(about: bytes, stream: bytes = b"") -> bytes:
    """A PDF file of nothing but this object."""
    return b"%PDF-1.4\n1 0 obj\n<< " + about + b" >>\nstream\n" + stream + b"\nendstream\nendobj\n"


def page(picture: bytes) -> bytes:
    """A page that shows it."""
    return b'<img src="data:image/png;base64,' + base64.b64encode(picture) + b'">'


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("no-picture.png", b"osd1 is at 10.0.0.5", True),
        ("note.png", png((b"tEXt", b"Author\0jane@lab7.nowhere.edu")), True),
        ("packed.png", png((b"zTXt", b"Text\0\0" + zlib.compress(b"at 10.0.0.5"))), True),
        ("behind.png", png() + b"10.0.0.5", True),
        ("points.png", png((b"IDAT", b" 10.0.0.5 ")), False),
        ("cut-off.png", png((b"tEXt", b"Software\0x"))[:-9], False),
        ("no-picture.pdf", b"osd1 is at 10.0.0.5", True),
        ("note.pdf", b"%PDF-1.4\n<< /Author (jane@lab7.nowhere.edu) >>\n", True),
        ("utf-16.pdf", pdf(b"/Author (" + "\ufeff10.0.0.5".encode("utf-16-be") + b")"), True),
        ("hex.pdf", pdf(b"/Author <" + b"10.0.0.5".hex().encode() + b">"), True),
        ("xmp.pdf", pdf(b"/Type /Metadata", b"<x>10.0.0.5</x>"), True),
        ("packed.pdf", pdf(b"/Type /ObjStm" + FLATE, zlib.compress(b"(10.0.0.5)")), True),
        ("drawn.pdf", pdf(FLATE, b" 10.0.0.5 "), False),
        ("page.html", page(png((b"tEXt", b"Author\0jane@lab7.nowhere.edu"))), True),
        ("points.html", page(png((b"IDAT", b" 10.0.0.5 "))), False),
        ("no-picture.html", b'"iVBORw=AKIA' + b'ABCDEFGHIJKLMNOP"', True),
    ],
)
def test_pictures_are_known_by_their_contents(
    tmp_path: Path, name: str, data: bytes, found: bool
) -> None:
    """Points are no words; what is written beside them is."""
    (tmp_path / name).write_bytes(data)
    assert bool(scan({name: tmp_path / name}, {})) is found


def test_tables_keep_their_numbers(tmp_path: Path) -> None:
    table = pd.DataFrame({"t_s": [0.5, 1.5], "node": ["10.0.0.5", "osd1"], "value": [1.0, 2.0]})
    table.to_parquet(tmp_path / "samples.parquet", index=False)
    found = scan({"a/samples.parquet": tmp_path / "samples.parquet"})
    assert [(one.file, one.what) for one in found] == [("a/samples.parquet", "a machine's address")]
    made = Redactor({}).parquet(tmp_path / "samples.parquet")
    assert made is not None
    (tmp_path / "made.parquet").write_bytes(made)
    assert not scan({"made.parquet": tmp_path / "made.parquet"})
    again = pd.read_parquet(tmp_path / "made.parquet")
    pd.testing.assert_frame_equal(again[["t_s", "value"]], table[["t_s", "value"]])
    assert again["node"].tolist() == ["192.0.2.1", "osd1"]
    assert Redactor({}).parquet(tmp_path / "made.parquet") is None


def test_a_finding_says_where_and_never_what_it_read(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(f"one\ntwo\n{SECRETS['a key of Ceph']}\n")
    (found,) = scan({"logs/x.log": tmp_path / "x.log"})
    assert (found.file, found.line, found.what) == ("logs/x.log", 3, "a key of Ceph")
    assert "4z/" not in str(found)


def test_what_this_machine_knows_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_PASSWORD", "correct horse")
    monkeypatch.setenv("OS_REGION_NAME", "RegionNowhere")
    monkeypatch.setattr("socket.gethostname", lambda: "workbench7.nowhere.edu")
    (tmp_path / "a.txt").write_text("RegionNowhere workbench70\nworkbench7 says correct horse\n")
    found = scan({"a.txt": tmp_path / "a.txt"}, words_of_this_machine(["tank"]))
    assert [(one.line, one.what) for one in found] == [
        (2, "this machine's host name"),
        (2, "the value of the variable OS_PASSWORD"),
    ]


@pytest.mark.parametrize("beside", ["there", "gone"])
def test_two_processes_find_what_one_does(
    beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {}
    for number, text in enumerate((*SECRETS.values(), *MORE_SECRETS, "nothing", "of myhost-7")):
        for name in (f"{number}.txt", f"{number}-192.168.7.{number}.txt"):
            files[name] = tmp_path / name
            files[name].write_text(f"first\n{text}\n")
    words = {"myhost-7": "a host name"}
    alone = scan(files, words)
    assert len(alone) > len(files)
    monkeypatch.setattr(scanning, "workers", lambda files: 2)
    if beside == "gone":
        monkeypatch.setattr("sys.executable", "/bin/false")
    assert scan(files, words) == alone
