"""Error messages for wrong files in our own words: place, value, allowed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from schemas.errors import UserError
from schemas.mistakes import mistake
from tests.errors import raises

PYDANTICS_OWN = ("Extra inputs", "Input should", "Field required", "Value error", "pydantic")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Pool(Strict):
    name: str
    size: int = Field(default=3, ge=1, le=10)


class Ceph(Strict):
    kind: Literal["ceph"] = "ceph"
    pools: list[Pool] = []


class Swift(Strict):
    kind: Literal["swift"]
    layout: str = "static"


class Divided(Strict):
    osd: str
    scratch: str | None = None


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Nothing(Strict):
    pass


class Site(Strict):
    """Model with every shape of files."""

    name: str = Field(default="a", min_length=1, pattern="^[a-z]+$")
    store: (
        Annotated[
            Annotated[Ceph, Tag("ceph")] | Annotated[Swift, Tag("swift")],
            Discriminator(lambda v: v.get("kind", "ceph") if isinstance(v, dict) else "ceph"),
        ]
        | None
    ) = None
    plain: Annotated[Ceph | Swift, Field(discriminator="kind")] = Ceph()
    node_type: str | dict[str, str] | None = None
    devices: dict[str, str | list[str] | Divided] = {}
    names: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    either: Annotated[list[int], BeforeValidator(_listed)] | bool = False
    share: float = Field(default=1.0, gt=0, lt=2)
    quick: bool = False
    secrets: dict[str, int] = {}
    empty: Nothing = Nothing()
    unused: str = Field(default="", max_length=0)
    short: str = Field(default="ab", min_length=2, max_length=3)

    @model_validator(mode="after")
    def _sound(self) -> Site:
        if self.name == "bad":
            raise ValueError("OSDs are not called bad")
        return self


NO_KEY, NOT = "there is no such key; allowed: ", " is not allowed; allowed: "
CASES: list[tuple[Mapping[str, Any], str]] = [
    ({"nane": "x"}, f"nane: {NO_KEY}devices, either, empty, name, names, node_type, "),
    ({"name": ""}, f"name: ''{NOT}a text that is not empty"),
    ({"name": "A"}, f"name: 'A'{NOT}a text of the pattern ^[a-z]+$"),
    ({"name": None}, f"name: it is empty, which{NOT}a text"),
    ({"name": "bad"}, "OSDs are not called bad"),
    ({"unused": "x"}, f"unused: 'x'{NOT}nothing (leave it out)"),
    ({"short": "a"}, f"short: 'a'{NOT}a text of at least 2 characters"),
    ({"short": "abcd"}, f"short: 'abcd'{NOT}a text of at most 3 characters"),
    ({"empty": {"a": 1}}, f"empty.a: {NO_KEY}none here"),
    ({"store": {"pools": [{}]}}, "store.pools.0.name: is missing"),
    # And the name is missing.
    ({"store": {"pools": [{"nam": "a"}]}}, f"store.pools.0.nam: {NO_KEY}name, size; did you mean"),
    ({"store": {"kind": "swift", "pools": []}}, f"store.pools: {NO_KEY}kind, layout"),
    ({"store": {"pools": {}}}, f"store.pools: a mapping{NOT}a list"),
    ({"store": {"pools": [{"name": "a", "size": 11}]}}, f"store.pools.0.size: 11{NOT}a number of"),
    ({"plain": {"kind": "cepf"}}, f"plain.kind: 'cepf'{NOT}'ceph', 'swift'; did you mean ceph?"),
    ({"plain": {}}, "plain.kind: is missing"),
    ({"plain": {"kind": "swift", "layouts": "x"}}, f"plain.layouts: {NO_KEY}kind, layout; did you"),
    ({"node_type": 4}, f"node_type: 4{NOT}a text or a mapping (key: value)"),
    ({"node_type": {"osd": 4}}, f"node_type.osd: 4{NOT}a text"),
    ({"devices": {"osd0": {"osdd": "/dev/sdb"}}}, f"devices.osd0.osdd: {NO_KEY}osd, scratch; did"),
    ({"devices": {"osd0": 3}}, f"devices.osd0: 3{NOT}a text or a list or a mapping (key: value)"),
    ({"devices": {"osd0": ["/dev/sdb", 7]}}, f"devices.osd0.1: 7{NOT}a text"),
    ({"names": ["a", 1]}, f"names.1: 1{NOT}a text"),
    ({"either": [1, "b"]}, f"either.1: 'b'{NOT}a whole number"),
    ({"share": 0, "quick": "perhaps"}, "share: 0 is not allowed (1 more); allowed: a number above"),
    ({"quick": "perhaps"}, f"quick: 'perhaps'{NOT}true or false"),
    # Possible secrets are not repeated.
    ({"secrets": {"a": "hush"}}, f"secrets.a: this{NOT}a whole number"),
    ({"share": "x" * 100}, f"share: '{'x' * 59}...{NOT}a number"),
]


@pytest.mark.parametrize(("data", "said"), CASES)
def test_words(data, said):
    with pytest.raises(ValidationError) as error:
        Site.model_validate(data)
    assert str(mistake(error.value, Site).error("a.yaml")).startswith(f"a.yaml: {said}")


# -- files written by people -----------------------------------------------------------------------


def spec(path: Path, body: Mapping[str, Any]) -> None:
    from testbed.spec import load_spec

    group = {"name": "admin", "roles": ["admin", "client"]}
    path.write_text(yaml.safe_dump({"name": "t", "store": None, "groups": [group]} | dict(body)))
    load_spec(path)


GRID = {"name": "one", "figures": ["6a"], "vary": {"op": ["seq"]}, "repetitions": 1}


def campaign(path: Path, body: Mapping[str, Any]) -> None:
    from campaigns.engine.campaign_file import load_campaign

    usual: dict[str, Any] = {"name": "c", "paper": "dlr", "profile": "quick", "ground": "local"}
    usual |= {"spec": "s.yaml", "notebook": "n.ipynb", "time_scale": 1.0}
    usual |= {"grids": [GRID | dict(body.get("grid", {}))]}
    path.write_text(yaml.safe_dump(usual | {k: v for k, v in body.items() if k != "grid"}))
    load_campaign(path)


def topology(path: Path, body: Mapping[str, Any]) -> None:
    from campaigns.papers.prioritymeister.topology import load_topology

    workload = {"name": "w", "client": "c", "server": "s", "trace": "t", "slo": {"latency": "1s"}}
    usual = {"hosts": {"c": {}, "s": {}}, "workloads": [workload | dict(body)]}
    path.write_text(yaml.safe_dump(usual))
    load_topology(path)


def inventory(path: Path, body: Mapping[str, Any]) -> None:
    from testbed.sites.inventory.hosts import read_file

    path.write_text(yaml.safe_dump({"hosts": [{"address": "192.0.2.1"} | dict(body)]}))
    read_file(path)


def ansible_inventory(path: Path, body: Mapping[str, Any]) -> None:
    from testbed.sites.inventory.hosts import host_of

    host_of("a", dict(body), path)


def hosts_of_a_site(path: Path, body: Mapping[str, Any]) -> None:
    from testbed.sites.inventory.hosts import read_options

    read_options({"hosts": [{"address": "192.0.2.1"} | dict(body)]}, str(path))


def lease_of_a_site(path: Path, body: Mapping[str, Any]) -> None:
    from testbed.sites.chameleon.options import read_options

    read_options({"site": "CHI@UC", "node_type": "storage", "lease": dict(body)}, str(path))


def simulation(path: Path, body: Mapping[str, Any]) -> None:
    from testbed.simulated.parameters import load_parameters

    path.write_text(yaml.safe_dump(dict(body)))
    load_parameters(path)


FILES: list[tuple[Callable[[Path, Mapping[str, Any]], None], Mapping[str, Any], str]] = [
    (spec, {"store": {"pools": [{"name": "p", "sise": 2}]}}, "store.pools.0.sise"),
    (spec, {"store": {"deployer": {"kind": "cephadm", "imag": "x"}}}, "store.deployer.imag"),
    (spec, {"store": {"kind": ["ceph"]}}, "store"),
    (spec, {"groups": "all"}, "groups"),
    (campaign, {"lease": {"margins_s": 60}}, "lease.margins_s"),
    (campaign, {"grids": [GRID, GRID | {"name": "two", "figures": [7]}]}, "grid two.figures.0"),
    (campaign, {"grid": {"vary": {}}}, "grids.grid one.vary"),
    (topology, {"slo": {"latancy": "1s"}}, "w.slo.latancy"),
    (inventory, {"port": "ssh"}, "hosts.0.port"),
    (ansible_inventory, {"ansible_port": "ssh"}, "machine a: ansible_port"),
    (hosts_of_a_site, {"usr": "cc"}, "hosts.0.usr"),
    (lease_of_a_site, {"start": "soon"}, "lease.start"),
    (simulation, {"detail_node": 2}, "detail_nodes"),
]


@pytest.mark.parametrize(("write_and_read", "body", "said"), FILES)
def test_every_file_says_what_is_allowed(tmp_path, write_and_read, body, said):
    path = tmp_path / "mine.yaml"
    with raises(UserError, said) as error:
        write_and_read(path, body)
    text = str(error.value)
    assert str(error.value).startswith(str(path))
    assert not any(words in text for words in PYDANTICS_OWN)
