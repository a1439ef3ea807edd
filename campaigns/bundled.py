"""Files behind the runs of a campaign, for a bundle, and the request for running it again.

`sources` collects campaign files, specs, notebooks, controllers, constants and profiles. Specs are
packed without names of machines and people. `again` returns the request for `hotbed run` on a
campaign of an unpacked bundle. `analysis.bundle` packs the runs themselves.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from campaigns.engine.campaign_file import FILES, ROOT, load_campaign, own_notebook, resolve
from campaigns.engine.provenance import code_state, hotbed_version
from campaigns.engine.session import Request
from campaigns.papers.mos.profile.points import ELSEWHERE
from campaigns.papers.mos.profile.points import place as place_of
from controllers.registry import FOREIGN, available
from schemas.errors import UserError
from schemas.yaml_file import dump, read_mapping, survey
from testbed.simulated.parameters import ModelParameters, load_parameters
from testbed.sites import names_told, options_that_name_nobody
from testbed.spec import NfsSpec, load_spec

LOCKS = ("requirements.lock", "environment.yml", "pyproject.toml")
Job = Mapping[str, Any]
_SKIPPED = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git"}


@dataclass(frozen=True)
class Sources:
    """Result of `sources`.

    Attributes:
        files: name in the bundle -> file.
        hide: folders of this machine, each with its placeholder.
        notes: sentences for the appendix.
        version: Hotbed's version.
        commit: Hotbed's commit; None outside a clone.
        authors: the authors in CITATION.cff.
        names: names of machines, users and projects that were removed from specs.
    """

    files: Mapping[str, Path]
    hide: Mapping[str, str]
    notes: tuple[str, ...]
    version: str
    commit: str | None
    authors: tuple[Mapping[str, Any], ...]
    names: tuple[str, ...] = ()


@dataclass
class _Found:
    files: dict[str, Path] = field(default_factory=dict)
    hide: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, name: str, file: Path) -> None:
        """Add a file.

        Raises:
            UserError: the bundle has a file of the same name with other contents.
        """
        there = self.files.setdefault(name, file)
        if there != file and there.read_bytes() != file.read_bytes():
            raise UserError(
                f"{there} and {file} are two different files that would both be {name} in the "
                "bundle",
                do="bundle the campaigns one by one, or rename one of the files",
            )


def sources(campaigns: Mapping[Path, Sequence[Path]], scratch: Path) -> Sources:
    """Return the files behind the runs of campaigns (folder -> the packed attempts).

    Args:
        campaigns: folders of runs.
        scratch: an empty folder for generated files.

    Raises:
        UserError: a campaign's record cannot be read, its folder has another name, or a file that
            it names is missing. Also if two different files would get the same name.
    """
    found = _Found(hide={str(ROOT): "$HOTBED", str(Path.home()): "$HOME"})
    for name in LOCKS:
        if (ROOT / name).is_file():
            found.files[f"environment/{name}"] = ROOT / name
    found.files["LICENSE"] = ROOT / "LICENSE"
    for folder, attempts in campaigns.items():
        _add_campaign(found, folder, list(jobs(attempts)), scratch)
    commit, dirty = code_state()
    if dirty:
        found.notes.append("The code that made this bundle differs from its commit.")
    return Sources(
        found.files,
        found.hide,
        tuple(found.notes),
        hotbed_version(),
        commit,
        tuple(_authors()),
        tuple(dict.fromkeys(found.names)),
    )


def _add_campaign(found: _Found, folder: Path, made: Sequence[Job], scratch: Path) -> None:
    record = recorded(folder)
    body, identity = record["campaign"], record.get("identity", {})
    name = str(body["name"])
    if name != folder.name:
        raise UserError(
            f"holds runs of the campaign {name}", where=folder, do=f"call the folder {name} again"
        )
    file = scratch / f"{name}.yaml"
    file.write_text(dump(portable(body)))
    found.add(f"campaigns/{name}.yaml", file)
    spec = _named(folder, body, "spec", made)
    if spec is not None:
        known = (body, record.get("cells"))
        found.add(f"specs/{spec.name}", _leaving(found, spec, known, scratch / name))
        found.notes += _changed(spec, str(identity.get("spec_digest", "")))
    notebook = _named(folder, body, "notebook", made)
    if notebook is not None:
        found.add(f"notebooks/{notebook.name}", notebook)
    models, own, profiles = set(), set(), set()
    for job in made:
        models.add(str(job.get("model") or ""))
        parameters = job.get("parameters", {})
        own.add((str(job.get("controllers_dir") or ""), str(parameters.get("controller"))))
        profiles.add(str(parameters.get("profile") or ""))
    for model in sorted(models - {""}):
        if Path(model).is_file():  # else the bundle is refused, because it could not be run again
            found.add(f"models/{Path(model).name}", Path(model))
    for place, controller in sorted(own):
        if place:
            _add_controller(found, Path(place), controller)
    if body.get("system") == "mos":
        _add_profiles(found, profiles - {""})


def _leaving(found: _Found, spec: Path, campaign: object, scratch: Path) -> Path:
    """Return a copy of `spec` that names no machines or people and needs no other files."""
    alone = _alone(spec, scratch)
    made = portable_spec(alone, spec.parent, campaign)
    found.names += made.names
    found.notes += made.notes
    if made.text is None:
        return alone
    scratch.mkdir(exist_ok=True)
    file = scratch / spec.name
    file.write_text(made.text)
    return file


def _alone(spec: Path, scratch: Path) -> Path:
    """Return a copy of `spec` that needs no other files. The copy contains the store's profile and
    the values of YAML aliases, because readers of a bundle refuse aliases."""
    body = read_mapping(spec, "a spec is a mapping with name, groups and store")
    store = body.get("store")
    charged = isinstance(store, dict) and isinstance(store.get("profile"), str)
    if not charged and not survey(spec.read_text()):
        return spec
    if charged:
        read = load_spec(spec).store
        assert isinstance(store, dict)
        assert isinstance(read, NfsSpec)  # no other store has a profile
        store["profile"] = read.profile
    scratch.mkdir()
    made = scratch / spec.name
    made.write_text(dump(body))
    return made


def _changed(spec: Path, digest: str) -> Iterator[str]:
    if digest and load_spec(spec).digest() != digest:
        yield f"The spec {spec.name} has changed since the runs were made."


def _add_controller(found: _Found, own: Path, controller: str) -> None:
    """Add the code of a controller from outside Hotbed."""
    try:
        known = available((own,)).get(controller)
    except UserError:
        known = None
    if known is None:
        found.notes.append(f"The code of the controller {controller} is not there any more.")
    elif known.outside:
        for file in sorted(known.folder.rglob("*")):
            inner = file.relative_to(known.folder)
            if file.is_file() and not _SKIPPED.intersection(inner.parts):
                found.add(f"controllers/{known.folder.name}/{inner.as_posix()}", file)


def _add_profiles(found: _Found, names: set[str]) -> None:
    """Add the measured points that cells name (`hotbed mos profile --keep`)."""
    for name in sorted(names):
        try:
            found.add(f"profiles/{name}.json", place_of(name))
        except UserError:
            found.notes.append(f"The profile {name} is not there any more.")


def jobs(attempts: Iterable[Path]) -> Iterator[Job]:
    """Yield the jobs of the attempts in these folders."""
    for attempt in attempts:
        try:
            body = json.loads((attempt / "job.json").read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(body, dict):
            yield body


def _named(folder: Path, body: Mapping[str, Any], key: str, made: Sequence[Job]) -> Path | None:
    """Return the file that a campaign names as its `key`, or None if it names none. The path is
    from the latest runs, or (older runs do not record it) from Hotbed's own campaigns.

    Raises:
        UserError: the file is missing.
    """
    name = str(body.get(key) or "")
    if not name:
        return None
    last = PurePosixPath(name).name
    latest = sorted(made, key=lambda job: str(job.get("started_at")), reverse=True)
    told = dict.fromkeys(str(job.get(key) or "") for job in latest)
    places = [Path(one) for one in told if PurePosixPath(one).name == last]
    places += [ROOT / name, FILES / name]
    # For runs that were in a bundle, or were made again from a bundle.
    ours = [one for one in (name, *told) if one.startswith("$HOTBED/")]
    places += [ROOT / one.removeprefix("$HOTBED/") for one in ours]
    if name == f"../specs/{last}":
        places.append(ROOT / "testbed" / "specs" / last)
    places += [one for one in [own_notebook(name)] if one is not None and key == "notebook"]
    for place in places:
        if place.is_file():
            return place
    raise UserError(
        f"its campaign names the {key} {name}, which is missing now ({places[0]}), so "
        "that nobody could run it again",
        where=folder,
        do="put it back",
    )


def recorded(folder: Path) -> dict[str, Any]:
    """Read ``campaign.json`` of a folder of runs.

    Raises:
        UserError: the file is missing or cannot be read.
    """
    path = folder / "campaign.json"
    try:
        body = json.loads(path.read_bytes())
        if isinstance(body["campaign"], dict) and body["campaign"]["name"]:
            return dict(body)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UserError(
        "does not describe its campaign", where=path, do="run it once more with hotbed run"
    )


def portable(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a campaign's file with the bundle's paths of its spec and notebook."""
    changed = dict(body)
    for key, place in (("spec", "specs"), ("notebook", "notebooks")):
        name = str(body.get(key) or "")
        if name:
            changed[key] = f"../{place}/{PurePosixPath(name).name}"
    return changed


def stated(bundle: Path, campaign: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a campaign's file in an unpacked bundle, which `again` runs, and the campaign from the
    record of its runs.

    Raises:
        UserError: either cannot be read.
    """
    file = bundle / "campaigns" / f"{campaign}.yaml"
    said = read_mapping(file, "a campaign is a mapping with name, grids and more")
    return said, portable(recorded(bundle / "artifacts" / campaign)["campaign"])


def _authors() -> Iterator[dict[str, Any]]:
    """Yield the authors in CITATION.cff."""
    import yaml

    known = ("name", "family-names", "given-names", "affiliation")
    for author in yaml.safe_load((ROOT / "CITATION.cff").read_text())["authors"]:
        found = {key.replace("-", "_"): str(author[key]) for key in known if key in author}
        if "orcid" in author:
            found["orcid"] = str(author["orcid"]).rpartition("/")[2]
        yield found


# ---- specs --------------------------------------------------------------------------------------

LEFT_OUT = "# Options of the site that name machines or people were left out of this copy.\n"
_NAMING = ("hosts", "nodes", "user", "ssh_user", "proxy_jump", "project", "network")
_NOT_OF_A_MACHINE = {"key", "host_key", "port", "private_address"}
_EVERYBODYS = {"root", "admin", "user", "users", "ubuntu", "debian", "centos", "rocky", "fedora"}
_EVERYBODYS |= {"ec2-user", "vagrant", "ansible", "hotbed", "git", "ssh", "host", "hosts"}
_EVERYBODYS |= {"localhost", "node", "server", "client", "head", "login", "jump", "bastion"}
_EVERYBODYS |= {"proxy", "gateway", "storage", "ceph", "cephadm", "swift", "test", "lab", "data"}
_EVERYBODYS |= {"bench", "default", "osd", "mon", "mgr", "mds", "rgw", "none", "null", "true"}
_EVERYBODYS |= {"false", "all", "sharednet1"}
"""Names that identify nobody; aliases for them would make every file unreadable."""
_SHORTEST = 3


@dataclass(frozen=True)
class PortableSpec:
    """A spec for a bundle. `text` is None if the file needs no change. `names` are names of
    machines, users and projects in the removed options."""

    text: str | None
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def portable_spec(spec: Path, folder: Path, campaign: object) -> PortableSpec:
    """Return a spec without the options that name machines and people. Results do not depend on
    these options (`TestbedSpec.digest`).

    Args:
        spec: the file.
        folder: the folder of the files that the spec names.
        campaign: the campaign's record. Words of the campaign and of the rest of the spec are not
            `names`, because runs would be unreadable without them.

    Raises:
        UserError: the spec cannot be read.
    """
    body = read_mapping(spec, "a spec is a mapping with name, groups and store")
    site = body.get("site")
    options = site.get("options") if isinstance(site, dict) else None
    if not isinstance(site, dict) or not isinstance(options, dict):
        return PortableSpec(None, ())
    kind = str(site.get("kind", "local"))
    stays = options_that_name_nobody(kind)
    kept = {key: options[key] for key in options if key in stays}
    lease = options.get("lease")
    if isinstance(kept.get("lease"), dict):
        kept["lease"] = {key: value for key, value in kept["lease"].items() if key != "name"}
    if kept == options:
        return PortableSpec(None, ())
    bare = {**body, "site": {"kind": kind} | ({"options": kept} if kept else {})}
    groups = [group for group in body.get("groups") or () if isinstance(group, dict)]
    counts = [(str(group.get("name")), group.get("count", 1)) for group in groups]
    nodes = [f"{name}{at}" for name, n in counts if isinstance(n, int) for at in range(n)]
    words = set(_words((campaign, bare, nodes)))
    texts = list(_within({key: options.get(key) for key in _NAMING}))
    texts += _within(lease.get("name")) if isinstance(lease, dict) else ()
    notes: tuple[str, ...] = ()
    try:
        texts += names_told(kind, options, folder)
    except UserError:
        notes = (
            f"The inventory that the spec {spec.name} names cannot be read any more: names of "
            "machines have aliases only where the runs identify them.",
        )
    names = [name for name in dict.fromkeys(_names(texts)) if _identifies(name, words)]
    return PortableSpec(LEFT_OUT + dump(bare), tuple(names), notes)


def lacks_options(spec: Path) -> bool:
    """Return True if options that name machines were removed from a bundled spec."""
    try:
        return spec.read_text().startswith(LEFT_OUT)
    except (OSError, UnicodeDecodeError):
        return False


def _within(value: object) -> Iterator[str]:
    """Yield the texts in an option that names machines or people."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _NOT_OF_A_MACHINE:
                yield from _within(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _within(inner)


def _names(texts: Iterable[str]) -> Iterator[str]:
    """Yield users, machines, and machines without their domain."""
    for text in texts:
        user, _, host = text.strip().rpartition("@")
        host = re.sub(r":\d+$", "", host) if host.count(":") == 1 else host
        yield user
        yield host
        if not _is_address(host):
            yield host.partition(".")[0]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("]")[0].lstrip("["))
    except ValueError:
        return False
    return True


def _identifies(name: str, words: set[str]) -> bool:
    if len(name) < _SHORTEST or name.isdigit() or _is_address(name):
        return False
    return name.lower() not in _EVERYBODYS and name not in words


def _words(value: object) -> Iterator[str]:
    """Yield the words of a record, except paths: a path may contain a person's name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _words(str(key))
            yield from _words(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _words(inner)
    elif isinstance(value, str) and not re.search(r"[/@$]", value):
        yield value
        yield from re.split(r"[^\w.-]+", value)


# ---- run again ----------------------------------------------------------------------------------


@contextmanager
def profiles_of(bundle: Path) -> Iterator[None]:
    """Have cells plan with the measured points of an unpacked bundle, not with Hotbed's points of
    the same name. Child processes do so too."""
    folder = bundle / "profiles"
    before = os.environ.get(ELSEWHERE)
    if folder.is_dir():
        os.environ[ELSEWHERE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(ELSEWHERE, None)
        if before is not None:
            os.environ[ELSEWHERE] = before


@dataclass(frozen=True)
class Again:
    """A campaign of a bundle for another run: `request` is for `hotbed run`, `ground` is the ground
    of the bundle's runs."""

    request: Request
    ground: str


def again(
    bundle: Path,
    campaign: str,
    artifacts: Path,
    *,
    figure: str | None = None,
    spec: Path | None = None,
    site: str | None = None,
    testbed: str | None = None,
    ground: str | None = None,
) -> Again:
    """Return the campaign `campaign` of an unpacked bundle, for a run into `artifacts`.

    Args:
        bundle: the unpacked bundle; it must exist until the campaign has run. Paths in the
            campaign's file are replaced with paths in the bundle.
        campaign: the campaign's name.
        artifacts: a folder without the original runs.
        figure: run only the cells of this figure.
        spec: a testbed's file instead of the bundle's.
        site: a kind of site instead of the spec's, without options.
        testbed: a testbed's name instead of the spec's.
        ground: a ground of real machines instead of the campaign's.

    Raises:
        UserError: a file is missing, or simulated runs would be compared with measured runs.
    """
    file = bundle / "campaigns" / f"{campaign}.yaml"
    if not file.is_file():
        raise UserError(f"the bundle holds no file of the campaign {campaign}")
    # Use only files of the bundle: an absolute path would name a file of this machine.
    body = portable(read_mapping(file, "a campaign is a mapping with name, grids and more"))
    made_on = str(body.get("ground", "sim"))
    if ground not in (None, made_on) and "sim" in (ground, made_on):
        raise UserError(
            f"the bundle's runs are of ground {made_on}, and what is simulated is never "
            "compared with what was measured as if it were the same",
            where=f"--ground {ground}",
        )
    if spec is not None:
        if not spec.is_file():
            raise UserError("there is no such file", where=f"--spec {spec}")
        body["spec"] = str(spec.resolve())
    if site is not None:
        body["spec"] = str(_on_site(bundle, file, str(body.get("spec") or ""), site))
    ours = own_notebook(str(body.get("notebook") or "none"))
    if ours is not None:  # Hotbed's own notebook is preferred to the bundle's untrusted one
        body["notebook"] = str(ours)
    file.write_text(dump(body))
    made = _jobs(bundle, campaign)
    request = Request(
        str(file),
        figure,
        testbed,
        artifacts,
        _controllers(bundle, made),
        ground,
        _constants(bundle, campaign, made),
    )
    return Again(request, made_on)


def _jobs(bundle: Path, campaign: str) -> list[Job]:
    """Return the jobs of one campaign's runs: other campaigns may use other constants and
    controllers."""
    return list(jobs(sorted((bundle / "artifacts" / campaign).glob("*/attempt-*"))))


def _controllers(bundle: Path, made: Sequence[Job]) -> Path | None:
    folder = bundle / "controllers"
    for policy in folder.rglob("policy.py"):
        (policy.parent / FOREIGN).write_text("It came with a bundle, and runs confined.\n")
    return folder if folder.is_dir() and any(job.get("controllers_dir") for job in made) else None


def _constants(bundle: Path, campaign: str, made: Sequence[Job]) -> Path | None:
    """Return the model's constants of a campaign's runs; None for the default constants.

    Raises:
        UserError: the constants are not in the bundle, or the runs used several.
    """
    names = sorted({Path(str(job["model"])).name for job in made if job.get("model")})
    files = [bundle / "models" / name for name in names]
    for file in files:
        if not file.is_file():
            raise UserError(
                f"the runs of the campaign {campaign} were made on the model's constants in "
                f"{file.name}, which are not there any more"
            )
    known = [load_parameters(file) for file in files]
    if not all(job.get("model") for job in made):
        known.append(ModelParameters())
    if any(one != known[0] for one in known):
        raise UserError(
            f"the runs of the campaign {campaign} were made on several constants of the model "
            f"({', '.join(names)}{', and its usual ones' if len(known) > len(names) else ''}), "
            "and a rerun uses one",
            do="run it by hotbed run --model, into another --artifacts",
        )
    return files[0] if files else None


def missing(bundle: Path, campaign: str) -> Iterator[str]:
    """Yield the files that a bundled campaign names and the bundle lacks.

    Raises:
        UserError: the campaign's file cannot be read.
    """
    file = bundle / "campaigns" / f"{campaign}.yaml"
    body = read_mapping(file, "a campaign is a mapping with name, grids and more")
    for key, place in (("spec", "specs"), ("notebook", "notebooks")):
        last = Path(str(body.get(key) or "")).name
        ours = key == "notebook" and own_notebook(last) is not None
        if last and not ours and not (bundle / place / last).is_file():
            yield f"{place}/{last}"


def require(bundle: Path, campaign: str) -> None:
    """Raise unless a campaign can be run again from a bundle.

    Raises:
        UserError: the reason why it cannot be run.
    """
    loaded = load_campaign(bundle / "campaigns" / f"{campaign}.yaml")
    for name in missing(bundle, campaign):
        raise UserError(f"campaigns/{campaign}.yaml names {name}, which is not there")
    if loaded.spec:
        load_spec(bundle / "specs" / Path(loaded.spec).name)
    _constants(bundle, campaign, _jobs(bundle, campaign))


def _on_site(bundle: Path, campaign: Path, spec: str, site: str) -> Path:
    """Write the spec with another site into the bundle's folder, and return its path."""
    if not spec:
        raise UserError(
            f"{campaign.stem} needs no testbed", where=f"--site {site}", do="leave it out"
        )
    body = read_mapping(resolve(spec, campaign), "a spec is a mapping with name, groups and store")
    body["site"] = {"kind": site}
    made = bundle / "specs" / f"on-{site}-{Path(spec).name}"
    made.write_text(dump(body))
    load_spec(made)
    return made


def is_exact(asked: Again) -> bool:
    """Return True if the results must equal the bundle's bit by bit: they are simulated and contain
    no times of this machine."""
    from campaigns.engine.kind import Computed
    from campaigns.papers.registry import kind_of

    if asked.ground != "sim":
        return False
    kind = kind_of(load_campaign(Path(str(asked.request.campaign))))
    ground = kind.grounds[asked.ground]
    return not (isinstance(ground, Computed) and ground.seconds_count)
