"""Data that must not leave with a bundle: omitted, replaced by an alias, or a reason to refuse."""

from __future__ import annotations

import io
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from synthetic import write_run

from analysis.bundle.private import Aliases, identifying, private_in, secrets_in
from analysis.bundle.publish import RECORDS, Stage, _aliases, attempts_of
from analysis.bundle.verify import verify
from campaigns.bundled import LEFT_OUT, portable_spec
from hotbed.bundling import bundle
from schemas.bundle import Sources
from schemas.errors import UserError
from testbed.spec import load_spec
from tests.campaigns.tiny_campaigns import TINY
from tests.errors import raises

# Assembled here, so that no secret scan of this repository reports these strings.
SECRETS = (
    "-----BEGIN OPENSSH PRIVATE " + "KEY-----",
    "-----BEGIN PGP PRIVATE " + "KEY BLOCK-----",
    "export OS_PASS" + "WORD=hunter22",
    "OS_PASS" + 'WORD="$3cret99"',
    "('OS_PASS" + "WORD', 'hunter22')",
    "gAAAA" + "AB" + "k3J9_x" * 9,
    "AUTH_" + "tk" + "0123456789abcdef" * 2,
    "X-Auth-" + "Key: testing",
    "headers['X-Auth-" + "Token'] = 'abcdefgh'",
    "ey" + "Jhbd0123456.ey" + "Jzdd0123456.c2lnbmVkMTIz",
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "key = AQ" + "Bx4z/+0123456789abcdefghijklmnopqrst" + "==",
    "https://me:s3cr" + "et@files.example.org/x",
    "Authorization: Bear" + "er abcdefghijklmnop1234",
    "Authorization: Bas" + "ic YWxpY2U6aHVudGVyMg==",
    '{"admin_pass' + 'word": "correcthorse"}',
    '{\\"pass' + 'word\\": \\"Str0ng$Pass\\"}',
    '{"access_key": "x", "secret_' + 'key": "wJalrXUtnFEMI7MDENGbPxRfiCY"}',
    'config="username=t:u;pass' + 'word=hunter22;auth_url=x"',
    "application_credential_sec" + "ret: abcDEF123456",
    "admin_tok" + "en = 0123abcd4567",
    '{"admin' + 'Pass": "zD4kb7QwErTy"}',
    "ansible_become_" + "pass: hunter22",
    "http://localhost:8888/?tok" + "en=8f3a77c1d5e4b2a9",
    "curl -s -u admin:" + "hunter22 http://x",
    "sshpass -p " + "secretly ssh x",
    '["tool", "--os-pass' + 'word", "hunter22"]',
    "machine x login alice pass" + "word hunter2",
)
PRIVATE = (
    *("10.42.0.7", "192.168.1.20", "172.20.3.4", "129.114.109.8", "ip-10-0-0-5"),
    *("fd00:1::7", "fe80::1c2b:3d4e", "fd12:0:0:0:0:0:0:5", "52:54:00:ab:cd:ef"),
    *("/ho" + "me/user1/x", "/Us" + "ers/user1/y", "/root/.ssh", "/export/ho" + "me/user1"),
    *("user1@uni-nowhere.edu", "tank2.cs.uni-nowhere.edu", "tank-2.lan", "node1.maas"),
)
AROUND = (
    *("{}", '{{"a": "{}"}}', "ssh: {} said", "x={},y", "[{}]", "\n{}\n", "{}: x"),
    *("\\u001b[32m{}\\u001b[39m", '{{"text": "said\\n{0}\\tand {0}"}}', "\x1b[K{}"),
)
HARMLESS = (
    "ceph 16.2.15, fio 3.33, 1.2.3.4 of a tool, 127.0.0.1, 0.0.0.0, 255.255.255.0",
    '{"t_s": 2.4918001145124435e-05, "values": [0.1, 10.25, 192.168], "at": "12:30:45"}',
    "systemd unit hotbed@1.service, git@github.com, someone@example.org, 192.0.2.7",
    "std::vector, a::b, 2026-11-21T21:45:00.014293+0000, dead:beef",
    "password: ***, token=None, /rooted/x, $HOME/x, secret: '' ",
    "username=t:u;password=***;auth_url=x, password = make_password(2), secretkey=***",
    "the password: correct, tokens=1234567, token_rate: 1000000",
    "password: $PASSWORD, password='{{ vault }}', \"password\": \"********\", token='${TOKEN}'",
    "OS_PASSWORD=$OS_PASSWORD_INPUT, ('OS_USERNAME', 'OS_PASSWORD'), OS_PASSWORD: <yours>",
    "token: 1.25e+06, token = tokens[0], secret = hashlib.sha256(text), --password PASSWORD",
    "host download.ceph.com, https://docs.example.org:443/x, ssh run.the.py, host = args.local",
    "address = node.network.ip, server = found.server.id, server: osd.0.log.gz, host=x.y.ok",
    "headers = {'X-Auth-Token': self._token, 'X-Auth-Key': endpoint['user']}",
    "environ['OS_PROJECT_NAME'] = project1, {'OS_USERNAME': config.USER, 'OS_PASSWORD': secret}",
    "GET /v3/users/abc, the key aq, 'asia' and curl",
)


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_found_in_its_line_and_gets_no_alias(text):
    assert {line for _, line in secrets_in(Aliases({}).text(f"first\nthen {text} here"))} == {2}


@pytest.mark.parametrize(
    ("password", "lines"), [("secret", [2]), ("!secret!", [2, 3]), ("correct horse", [2])]
)
def test_the_value_of_an_openstack_variable_is_found_as_a_word_of_its_own(
    monkeypatch, password, lines
):
    monkeypatch.setenv("OS_PASSWORD", password)
    monkeypatch.setenv("OS_REGION_NAME", "RegionNowhere")
    text = f"detect-secrets>=1.5\nlogin:{password}/more\nx{password}x\nRegionNowhere"
    found = list(secrets_in(text))
    assert [line for _, line in found] == lines
    assert {what for what, _ in found} == {"the value of the variable OS_PASSWORD"}


@pytest.mark.parametrize("text", PRIVATE)
def test_identifying_data_gets_an_alias(text):
    for around in AROUND:
        data = around.format(text)
        assert list(identifying(data)), around
        made = Aliases({}).text(data)
        assert text not in made
        assert not list(identifying(made))
        assert Aliases({}).text(f"a {made}") == f"a {made}"


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_stays(text):
    assert Aliases({}).text(text) == text
    assert not list(secrets_in(text))


def test_aliases_are_the_same_everywhere_and_words_are_whole():
    folders = {"/srv/lab/hotbed": "$HOTBED", "/srv/lab": "$LAB"}
    aliases = Aliases(folders, ["tank", "alice"])
    text = "/srv/lab/hotbed/x /srv/lab/y /srv/laboratory alice@tank mytank \ntank"
    made = "$HOTBED/x $LAB/y /srv/laboratory someone@host-1 mytank \nhost-1"
    assert aliases.text(text) == made
    assert aliases.counts == {"folders": 2, "host names": 3}
    hosts = [f"10.0.0.{number}" for number in range(9)]
    first = aliases.value({"hosts": hosts, "10.0.0.3": [1e-05, 10.25]})
    assert first == {"hosts": aliases.value(hosts), "address-4": [1e-05, 10.25]}
    assert len(set(first["hosts"])) == len(hosts)


# ---- a canary in every file of a run folder ------------------------------------------------------

CELL = {"op": "seq", "scenario": "none", "controller": "default"}
CANARIES = ("10.7.0.3", "fd00:1::7", "52:54:00:ab:cd:ef", "tank2.cs.uni-nowhere.edu", "tank2")
CANARIES += ("alice", "gateway7", "/ho" + "me/user1", "jane@uni-nowhere.edu", "/srv/lab")
CANARY = (
    "node osd1 (tank2.cs.uni-nowhere.edu, 10.7.0.3, fd00:1::7, 52:54:00:ab:cd:ef) is gone: tank2, "
    "alice@gateway7, /ho" + "me/user1/x, jane@uni-nowhere.edu, /srv/lab/specs/x"
)
GROUPS = [
    {"name": "head", "roles": ["admin", "mon", "mgr", "client"], "memory": "4GiB"},
    {"name": "osd", "count": 2, "roles": ["osd"], "memory": "4GiB", "disk": {"size": "40GiB"}},
]
OPTIONS: dict[str, Any] = {
    "hosts": [
        "tank1.cs.uni-nowhere.edu",
        {"address": "tank3.cs.uni-nowhere.edu", "user": "alice", "key": "~/.ssh/id_lab"},
        {"address": "192.168.7.1", "name": "osd0"},
    ],
    "user": "alice",
    "proxy_jump": "alice@gateway7:2222",
    "nodes": {"head": "tank1", "osd": ["osd0", "tank3"]},
    "signal": "iowait",
    "project": "CHI-123456",  # both kinds' options, for every checker
}


def spec_of(folder: Path, kind: str, options: dict[str, Any]) -> Path:
    body = {
        "name": "mine",
        "site": {"kind": kind, "options": options},
        "groups": GROUPS,
        "store": {"kind": "ceph", "pools": [{"name": "bench", "pg_num": 64}]},
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "mine.yaml"
    file.write_text("# the machines of alice\n" + yaml.safe_dump(body))
    return file


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def plant(attempt: Path, text: str) -> None:
    """Write `text` into every file of an attempt's folder, including unknown files."""
    for name in ("run.json", "job.json"):
        body = json.loads((attempt / "run.json").read_text())
        body["provenance"]["hosts"] |= {"osd1": {"hostname": text, "kernel": text}, text: {}}
        body["provenance"]["versions"]["fio"] = text
        body |= {"reason": text} if name == "run.json" else {"secret_place": text}
        body |= {"spec": "/srv/lab/specs/mine.yaml"} if name == "job.json" else {}
        (attempt / name).write_text(json.dumps(body))
    for name in (*RECORDS - {"journal.jsonl"}, "error.json", "notebook.ipynb", "logs/x.json"):
        (attempt / name).parent.mkdir(exist_ok=True)
        (attempt / name).write_text(json.dumps({"a": [text, {text: 1.5}], "text": f"\n{text}"}))
    for name in ("journal.jsonl", "logs/recording.jsonl"):
        (attempt / name).write_text(json.dumps({"header": True, "x": text}) + f"\n{text}")
    for name in ("logs/cell.log", "out.txt", "policy.py", "a.prom"):
        (attempt / name).write_text(f"first\n{text}\n")
    columns = {"t_s": [0.5], "node": [text], "metric": ["throughput_mb_s"], "value": [1.0]}
    schema = pa.table(columns | {text[:30]: [1.0]}).replace_schema_metadata({"note": text})
    (attempt / "samples.parquet").write_bytes(parquet(schema))
    (attempt / "core.bin").write_bytes(b"\0" + text.encode())
    (attempt / "logs" / "tank2.cs.uni-nowhere.edu.log").write_text("fine\n")


def campaign(artifacts: Path, spec: Path, text: str) -> Path:
    """Write a campaign of two good runs and an attempt with `text` in every file."""
    folder = artifacts / "dlr-tiny"
    cells = []
    for controller, speed in (("default", 100.0), ("dlr", 125.0)):
        parameters = {"op": "seq", "scenario": "heterogeneity", "controller": controller}
        made = write_run(folder, parameters, 0, speed, ground="inventory")
        cells.append({"run_id": made.parent.name, "grids": ["fig6"], "figures": ["6a"]})
    failed = write_run(folder, parameters, 0, 1.0, status="failed", ground="inventory", attempt=2)
    plant(failed, text)
    (folder / "ledger.jsonl").write_text(json.dumps({"reason": text}) + "\n")
    body = {**TINY, "name": "dlr-tiny", "ground": "inventory", "spec": str(spec)}
    (folder / "campaign.json").write_text(json.dumps({"campaign": body, "cells": cells}))
    return folder


def contents(file: Path) -> dict[str, bytes]:
    """Return the files of an archive; tables as their columns, texts and notes."""
    made = {}
    with zipfile.ZipFile(file) as opened:
        for name in opened.namelist():
            made[name] = opened.read(name)
            if name.endswith(".parquet"):
                table = pq.read_table(io.BytesIO(made[name]))
                made[name] += f"{table.to_pydict()}{table.schema.metadata}".encode()
    return made


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "logs"), [("inventory", False), ("chameleon", True)])
def test_no_canary_leaves(kind, logs, tmp_path):
    """Not in a known file, a raw log, a spec or a file name."""
    spec = spec_of(tmp_path / "labs", kind, OPTIONS)
    campaign(tmp_path / "artifacts", spec, CANARY)
    options: dict[str, Any] = {"artifacts": tmp_path / "artifacts", "with_logs": logs}
    made = bundle("dlr-tiny", tmp_path / "x.zip", **options)
    files = contents(made.path)
    for name in (*CANARIES, "tank", "CHI-1", str(tmp_path)):
        word = name.encode()
        assert [file for file, data in files.items() if word in data or word in file.encode()] == []
    inner = {name.partition("attempt-2/")[2] for name in files if "/attempt-2/" in name}
    known = {"run.json", "job.json", "summary.json", "samples.parquet", *RECORDS}
    assert inner >= known
    left_out = made.manifest.left_out
    assert left_out["unknown file core.bin"] == 1
    if logs:
        log = next(data for name, data in files.items() if name.endswith("logs/cell.log"))
        assert b"node osd1 (host-" in log
        assert inner >= {"logs/cell.log", "notebook.ipynb", "error.json", "policy.py"}
    else:
        assert inner == known
        assert left_out["raw logs and executed notebooks (--with-logs packs them)"] == 9
    assert made.manifest.redacted["addresses"] > 3
    (tmp_path / "mine.yaml").write_bytes(files["specs/mine.yaml"])
    assert load_spec(tmp_path / "mine.yaml").digest() == load_spec(spec).digest()
    assert load_spec(tmp_path / "mine.yaml").site.kind == kind
    checked = verify(made.path)
    assert checked.ok, checked.differences[:5]


def staged(place: Path, attempt: Path, *, logs: bool = False) -> Stage:
    stage = Stage(place, Aliases({}), Counter(), with_logs=logs)
    stage.add_campaign(attempt.parents[1], attempts_of(attempt.parents[1], stage.left_out))
    return stage


def inner(stage: Stage) -> dict[str, bytes]:
    """Return the packed files of the only attempt."""
    return {
        name.partition("attempt-1/")[2]: file.read_bytes() for name, file in stage.files().items()
    }


@pytest.mark.parametrize("text", SECRETS[1::9])
def test_a_secret_in_any_file_stops_it(text, tmp_path):
    attempt = write_run(tmp_path / "dlr-tiny", CELL, 0, 1.0)
    plant(attempt, text)
    found: dict[bool, set[str]] = {}
    for logs in (False, True):
        stage = staged(tmp_path / f"stage-{logs}", attempt, logs=logs)
        findings = list(private_in(stage.files()))
        found[logs] = {one.file.partition("attempt-1/")[2] for one in findings}
        assert not any("hunter" in str(one) for one in findings)
    assert found[False]
    assert found[True] >= {"logs/cell.log", "notebook.ipynb", "logs/x.json"} | found[False]


def attempt_of(place: Path, files: dict[str, bytes]) -> Path:
    """Write an attempt with these files and a link."""
    attempt = write_run(place / "artifacts" / "tiny", CELL, 0, 1.0, with_samples=False)
    for name, data in files.items():
        (attempt / name).parent.mkdir(parents=True, exist_ok=True)
        (attempt / name).write_bytes(data)
    (attempt / "link.log").symlink_to("/etc/hostname")
    return attempt


def test_files_that_a_bundle_cannot_hold_are_counted(tmp_path):
    """Names that verify would refuse, and names that become equal through aliases."""
    names = ("osd:1.log", "Run.json", "anna@uni.edu/x", "bert@uni.edu/x")
    files = dict.fromkeys(names, b"fine") | {"core": b"\xff\xfe", "summary.json": b"{"}
    stage = staged(tmp_path / "s", attempt_of(tmp_path, files), logs=True)
    assert +stage.left_out == {
        "files with names that a bundle cannot have": 3,
        "unknown file core": 1,
        "summary.json that cannot be read": 1,
        "links": 1,
    }
    assert inner(stage).keys() == {"run.json", "someone@example.org/x"}


def test_known_records_keep_their_bytes_and_private_data_is_found_in_all(tmp_path):
    files = {"journal.jsonl": b'{"a":1.50,"node":"osd0"}\n', "plan.json": b'{ "x": 1e-05 }'}
    assert inner(staged(tmp_path / "s", attempt_of(tmp_path, files))).items() >= files.items()
    (tmp_path / "null").write_bytes(b"null\n")
    assert not list(private_in({"artifacts/a/b/attempt-1/journal.jsonl": tmp_path / "null"}))
    # The first value of a key that is there twice stays private.
    text = b'{"a": "at 10.0.0.5", "a": 1}\n'
    twice = {"plan.json": text, "journal.jsonl": b"{}\n" + text}
    stage = staged(tmp_path / "t", attempt_of(tmp_path / "twice", twice))
    assert stage.left_out["plan.json that cannot be read"] == 1
    assert inner(stage)["journal.jsonl"] == b"{}\n"
    (tmp_path / "x").write_bytes(text)
    assert list(private_in({"artifacts/a/b/attempt-1/plan.json": tmp_path / "x"}))
    # A finding's place is named and never its text.
    (tmp_path / "x.log").write_text(f"one\ntwo\n{SECRETS[11]}\n10.1.2.3\n")
    found = list(private_in({"logs/10.0.0.6.log": tmp_path / "x.log"}))
    assert {(one.line, one.what) for one in found} == {
        (1, "a machine's address, in the file's name"),
        (3, "a key of Ceph"),
        (4, "a machine's address"),
    }
    assert "4z/" not in str(found)


PLAIN = pa.table({"t_s": [1.0]})
NOTE = {"of": "10.0.0.5"}


@pytest.mark.parametrize(
    "table",
    [
        PLAIN.replace_schema_metadata(NOTE),
        PLAIN.cast(pa.schema([pa.field("t_s", pa.float64(), metadata=NOTE)])),
        PLAIN.append_column("load of 10.0.0.5", [[1.0]]),
        PLAIN.append_column("node", [pa.array(["on 10.0.0.5"]).dictionary_encode()]),
        PLAIN.append_column("node", [[b"on 10.0.0.5"]]),
    ],
)
def test_a_table_has_nothing_but_known_columns(tmp_path, table):
    """Bytes, which cannot be searched, are found by the search of what was packed."""
    stage = staged(tmp_path / "s", attempt_of(tmp_path, {"samples.parquet": parquet(table)}))
    packed = stage.folder / next(name for name in stage.files() if name.endswith(".parquet"))
    made = pq.read_table(packed)
    assert set(made.column_names) <= {"t_s", "node"}
    assert made["t_s"].to_pylist() == [1.0]
    found = list(private_in({"x.parquet": packed}))
    assert bool(found) is ("node" in made.column_names and pa.types.is_binary(made["node"].type))
    (tmp_path / "x.parquet").write_bytes(parquet(table))
    assert list(private_in({"x.parquet": tmp_path / "x.parquet"}))


def test_a_table_that_cannot_be_read_is_one_sentence(tmp_path):
    """This holds for the maker of a bundle and for its reader. The texts are not UTF-8."""
    parts = [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    data = parquet(pa.table({"node": pa.Array.from_buffers(pa.string(), 1, parts)}))
    with raises(UserError, "no Parquet file that can be read", where="samples.parquet"):
        staged(tmp_path / "s", attempt_of(tmp_path, {"samples.parquet": data}))
    (tmp_path / "x.parquet").write_bytes(data)
    (found,) = private_in({"x.parquet": tmp_path / "x.parquet"})
    assert found.what == "a table that cannot be read"


def test_a_program_stays_as_it_is_or_stops_the_bundle(tmp_path):
    aliases = Aliases({}, ["simulator", "tank-7"], ["vault"])
    stage = Stage(tmp_path / "stage", aliases, Counter())
    program = tmp_path / "policy.py"
    for name, text in (
        ("controllers/mine/good.py", "simulator = 1\n"),
        ("campaigns/tiny.yaml", "# on simulator\n"),
        ("controllers/mine/a.py", "a = 1\nb = 'tank-7'\n"),
        ("controllers/mine/b.py", "# for Jane\nADDRESS = '10.7.0.3'\n"),
        ("controllers/mine/c.py", "\n\n" + SECRETS[2]),
        ("controllers/mine/d.py", "vault = 1\n"),
    ):
        program.write_text(text)
        stage.add_source(name, program)
    for data in (b"\x93NUMPY\0", b"\xff\xfe"):
        program.write_bytes(data)
        stage.add_source("controllers/mine/x.npy", program)
    assert [(one.file[-4:], one.line) for one in private_in(stage.files(), aliases)] == [
        ("a.py", 2),
        ("b.py", 2),
        ("c.py", 3),
        ("d.py", 1),
    ]
    assert (stage.folder / "controllers/mine/good.py").read_text() == "simulator = 1\n"
    assert (stage.folder / "campaigns/tiny.yaml").read_text() == "# on host-2\n"
    assert stage.left_out["sources that are no text"] == 2


def test_nodes_get_no_alias_also_if_a_machine_has_the_name(tmp_path):
    attempt = write_run(tmp_path / "tiny", CELL, 0, 1.0, ground="inventory")
    body = json.loads((attempt / "run.json").read_text())
    body["provenance"]["hosts"] = {"osd1": {}, "tank-2": {}}
    body["provenance"]["calibration"]["groups"] = {"osd": {}}
    (attempt / "run.json").write_text(json.dumps(body))
    found = Sources("0.1.0", None, (), {}, names=("osd1", "tank-2", "vault"))
    campaigns = {tmp_path: attempts_of(tmp_path / "tiny", Counter())}
    aliases = _aliases(tmp_path, campaigns, found, ["vault"])
    assert aliases.text("osd1 tank-2 vault") == "osd1 host-2 host-1"
    aliases = _aliases(tmp_path, campaigns, found, ["osd1"])
    assert aliases.text("osd1") == "host-1"


def test_attempts_of_other_plans_and_without_a_record_stay(tmp_path):
    folder = tmp_path / "tiny"
    for block in range(2):
        made = write_run(folder, CELL, block, 1.0)
    (made / "run.json").write_text("{}")
    (folder / "0" / ".attempt-1.partial").mkdir(parents=True)
    left_out: Counter[str] = Counter()
    assert made not in attempts_of(folder, left_out)
    assert +left_out == {"unfinished attempts": 1, "attempts without a valid run.json": 1}
    (folder / "campaign.json").write_text(json.dumps({"cells": []}))
    assert not attempts_of(folder, left_out)


def test_a_source_does_not_name_a_schema_that_is_not_in_the_bundle(tmp_path: Path) -> None:
    spec = tmp_path / "dlr.yaml"
    spec.write_text("# yaml-language-server: $schema=../json/spec.json\n# Nine nodes.\nname: dlr\n")
    stage = Stage(tmp_path / "stage", Aliases({}), Counter())
    stage.add_source("specs/dlr.yaml", spec)
    assert (stage.folder / "specs" / "dlr.yaml").read_text() == "# Nine nodes.\nname: dlr\n"


@pytest.mark.parametrize("there", [True, False])
def test_names_of_a_spec(there, tmp_path):
    """Machines of an inventory are names; a campaign's words and options that name nobody stay."""
    if there:
        body = {"hosts": [{"address": "tank1.uni-nowhere.edu", "user": "alice"}]}
        (tmp_path / "hosts.yaml").write_text(yaml.safe_dump(body))
    spec = spec_of(tmp_path, "inventory", {"inventory": "hosts.yaml"})
    made = portable_spec(spec, {})
    assert made.names == (("tank1.uni-nowhere.edu", "tank1", "alice") if there else ())
    assert bool(made.notes) is not there
    hosts = ["dlr", "head", "osd1", "bench", "reads", "tank", "10.0.0.5", "root", "x7"]
    spec = spec_of(tmp_path, "inventory", {"hosts": hosts, "user": "heterogeneity"})
    known = {"vary": {"controller": ["dlr"]}, "fixed": {"scenario": "heterogeneity"}, "reads": 1}
    assert portable_spec(spec, known).names == ("tank",)
    options = {"site": "CHI@TACC", "node_type": "storage", "lease": {"hours": 24, "name": "alices"}}
    made = portable_spec(spec_of(tmp_path, "chameleon", options), {})
    assert made.text is not None
    assert made.text.startswith(LEFT_OUT)
    assert yaml.safe_load(made.text)["site"]["options"] == options | {"lease": {"hours": 24}}
    assert made.names == ("alices",)
    options["lease"] = {"hours": 24}
    assert portable_spec(spec_of(tmp_path, "chameleon", options), {}).text is None
