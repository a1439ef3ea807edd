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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from campaigns.engine.campaign_file import FILES, ROOT, load_campaign, own_notebook, resolve
from campaigns.engine.provenance import code_state, hotbed_version
from campaigns.engine.session import Request
from campaigns.papers.mos.profile.points import ELSEWHERE
from campaigns.papers.mos.profile.points import place as place_of
from controllers.registry import FOREIGN, available
from schemas.bundle import Sources
from schemas.errors import UserError
from schemas.yaml_file import dump, read, read_mapping, survey
from testbed.simulated.parameters import ModelParameters, load_parameters
from testbed.sites import names_in_files, options_that_name_nobody
from testbed.spec import NfsSpec, load_spec, no_spec

LOCKS = ("requirements.lock", "environment.yml", "pyproject.toml")
Job = Mapping[str, Any]
_SKIPPED = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".git"}
_CAMPAIGN = "a campaign is a mapping with name, grids and more"
_SPEC = "a spec is a mapping with name, groups and store"


def sources(campaigns: Mapping[Path, Iterable[Path]], scratch: Path) -> Sources:
    """Return the files behind the runs of campaigns (folder -> the packed attempts). UserError: a
    campaign's record cannot be read, its folder has another name, or a file that it names is
    missing. Also if two different files would get the same name."""
    commit, dirty = code_state()
    found = Sources(hotbed_version(), commit, tuple(_authors()))
    found.hide = {str(ROOT): "$HOTBED", str(Path.home()): "$HOME"}
    for name in LOCKS:
        if (ROOT / name).is_file():
            found.files[f"environment/{name}"] = ROOT / name
    found.files["LICENSE"] = ROOT / "LICENSE"
    for folder, attempts in campaigns.items():
        _add_campaign(found, folder, list(jobs(attempts)), scratch)
    if dirty:
        found.notes += ("The code that made this bundle differs from its commit.",)
    return found


def _authors() -> Iterator[dict[str, str]]:
    """Yield the authors in CITATION.cff."""
    known = ("name", "family-names", "given-names", "affiliation")
    for author in read(ROOT / "CITATION.cff")["authors"]:
        found = {key.replace("-", "_"): str(author[key]) for key in known if key in author}
        if "orcid" in author:
            found["orcid"] = str(author["orcid"]).rpartition("/")[2]
        yield found


def _add(found: Sources, name: str, file: Path) -> None:
    there = found.files.setdefault(name, file)
    if there != file and there.read_bytes() != file.read_bytes():
        raise UserError(
            f"{there} and {file} are two different files that would both be {name} in the bundle",
            do="bundle the campaigns one by one, or rename one of the files",
        )


def _add_campaign(found: Sources, folder: Path, made: Sequence[Job], scratch: Path) -> None:
    record = recorded(folder)
    body = record["campaign"]
    name = str(body["name"])
    if name != folder.name:
        raise UserError(
            f"holds runs of the campaign {name}", where=folder, do=f"call the folder {name} again"
        )
    file = scratch / f"{name}.yaml"
    file.write_text(dump(portable(body)))
    _add(found, f"campaigns/{name}.yaml", file)
    spec = _named(folder, body, "spec", made)
    if spec is not None:
        leaving = portable_spec(spec, (body, record.get("cells")))
        found.names += leaving.names
        found.notes += leaving.notes
        packed = spec
        if leaving.text is not None:
            packed = scratch / f"{name}-{spec.name}"
            packed.write_text(leaving.text)
        _add(found, f"specs/{spec.name}", packed)
        digest = record.get("identity", {}).get("spec_digest")
        if digest and load_spec(spec).digest() != digest:
            found.notes += (f"The spec {spec.name} has changed since the runs were made.",)
    notebook = _named(folder, body, "notebook", made)
    if notebook is not None:
        _add(found, f"notebooks/{notebook.name}", notebook)
    for model in sorted({str(job.get("model") or "") for job in made}):
        if model and Path(model).is_file():  # without it the bundle is refused (`require`)
            _add(found, f"models/{Path(model).name}", Path(model))
    own = {(str(job.get("controllers_dir") or ""), _parameter(job, "controller")) for job in made}
    for place, controller in sorted(own):
        if place:
            _add_controller(found, Path(place), controller)
    if body.get("system") == "mos":  # with measured points (`hotbed mos profile --keep`)
        for profile in sorted({_parameter(job, "profile") for job in made} - {""}):
            try:
                _add(found, f"profiles/{profile}.json", place_of(profile))
            except UserError:
                found.notes += (f"The profile {profile} is not there any more.",)


def _parameter(job: Job, name: str) -> str:
    return str(job.get("parameters", {}).get(name) or "")


def _add_controller(found: Sources, own: Path, controller: str) -> None:
    """Add the code of a controller from outside Hotbed."""
    try:
        known = available((own,)).get(controller)
    except UserError:
        known = None
    if known is None:
        found.notes += (f"The code of the controller {controller} is not there any more.",)
    elif known.outside:
        for file in sorted(known.folder.rglob("*")):
            inner = file.relative_to(known.folder)
            if file.is_file() and not _SKIPPED.intersection(inner.parts):
                _add(found, f"controllers/{known.folder.name}/{inner.as_posix()}", file)


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
    from the latest runs, or from Hotbed's own files. UserError: the file is missing."""
    name = str(body.get(key) or "")
    if not name:
        return None
    last = PurePosixPath(name).name
    latest = sorted(made, key=lambda job: str(job.get("started_at")), reverse=True)
    recorded = [str(job.get(key) or "") for job in latest]
    places = [Path(one) for one in recorded if PurePosixPath(one).name == last]
    places += [ROOT / name, FILES / name]
    # For runs that were in a bundle, or were made again from a bundle.
    ours = [one for one in (name, *recorded) if one.startswith("$HOTBED/")]
    places += [ROOT / one.removeprefix("$HOTBED/") for one in ours]
    if name == f"../specs/{last}":
        places.append(ROOT / "testbed" / "specs" / last)
    if key == "notebook":
        places += filter(None, [own_notebook(name)])
    if there := next((place for place in places if place.is_file()), None):
        return there
    raise UserError(
        f"its campaign names the {key} {name}, which is missing now ({places[0]}), so "
        "that nobody could run it again",
        where=folder,
        do="put it back",
    )


def recorded(folder: Path) -> dict[str, Any]:
    """Return ``campaign.json`` of a folder of runs. UserError: it is missing or cannot be read."""
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
    machines, users and projects in the options that were left out."""

    text: str | None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def portable_spec(spec: Path, campaign: object) -> PortableSpec:
    """Return a spec that names no machines or people and needs no other files. Results do not
    depend on the options that are left out (`TestbedSpec.digest`). Words of `campaign` and of the
    rest of the spec are not `names`: runs would be unreadable without them."""
    body = read_mapping(spec, _SPEC)
    store, site = body.get("store"), body.get("site")
    changed = survey(spec.read_text())  # readers of a bundle refuse YAML's aliases
    if isinstance(store, dict) and isinstance(store.get("profile"), str):
        loaded = load_spec(spec).store
        assert isinstance(loaded, NfsSpec)  # no other store has a profile
        store["profile"], changed = loaded.profile, True
    options = site.get("options") if isinstance(site, dict) else None
    kind = str(site.get("kind", "local")) if isinstance(site, dict) else ""
    kept = _naming_nobody(kind, options) if isinstance(options, dict) else None
    if not isinstance(options, dict) or kept == options:
        return PortableSpec(dump(body) if changed else None)
    body["site"] = {"kind": kind} | ({"options": kept} if kept else {})
    lease = options.get("lease")
    naming = [options.get(key) for key in _NAMING]
    texts = list(_within([*naming, lease.get("name") if isinstance(lease, dict) else None]))
    notes: tuple[str, ...] = ()
    try:
        texts += names_in_files(kind, options, spec.parent)
    except UserError:
        notes = (
            f"The inventory that the spec {spec.name} names cannot be read any more: names of "
            "machines have aliases only where the runs identify them.",
        )
    words = {*_words((campaign, body)), *_nodes(body)}
    names = [name for name in dict.fromkeys(_names(texts)) if _identifies(name, words)]
    return PortableSpec(LEFT_OUT + dump(body), tuple(names), notes)


def _naming_nobody(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    stays = options_that_name_nobody(kind)
    kept = {key: value for key, value in options.items() if key in stays}
    if isinstance(kept.get("lease"), dict):
        kept["lease"] = {key: value for key, value in kept["lease"].items() if key != "name"}
    return kept


def _nodes(body: Mapping[str, Any]) -> Iterator[str]:
    for group in body.get("groups") or ():
        if isinstance(group, dict) and isinstance(count := group.get("count", 1), int):
            yield from (f"{group.get('name')}{at}" for at in range(count))


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
        yield from (user, host, host.partition(".")[0])


def _identifies(name: str, words: set[str]) -> bool:
    """Return True if a name identifies somebody; addresses get aliases wherever they are."""
    with suppress(ValueError):
        ipaddress.ip_address(name.partition("]")[0].lstrip("["))
        return False
    everybodys = name.isdigit() or name.lower() in _EVERYBODYS
    return len(name) >= _SHORTEST and not everybodys and name not in words


def _words(value: object) -> Iterator[str]:
    """Yield the words of a record, except paths: a path may contain a person's name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (*_words(str(key)), *_words(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _words(inner)
    elif isinstance(value, str) and not re.search(r"[/@$]", value):
        yield from (value, *re.split(r"[^\w.-]+", value))


# ---- run again ----------------------------------------------------------------------------------


@contextmanager
def profiles_of(bundle: Path) -> Iterator[None]:
    """Have cells plan with the measured points of an unpacked bundle, not with Hotbed's points of
    the same name. Child processes do so too."""
    before = os.environ.get(ELSEWHERE)
    if (bundle / "profiles").is_dir():
        os.environ[ELSEWHERE] = str(bundle / "profiles")
    try:
        yield
    finally:
        os.environ.pop(ELSEWHERE, None)
        if before is not None:
            os.environ[ELSEWHERE] = before


def _file(bundle: Path, campaign: str) -> Path:
    return bundle / "campaigns" / f"{campaign}.yaml"


@dataclass(frozen=True)
class RerunRequest:
    """A request to run a campaign of a bundle again.

    Attributes:
        campaign: name of the campaign, if there are several.
        figure: only the cells that feed this figure.
        spec, site, testbed, ground: another testbed's file, kind of site (without options) or name
            than the bundle's; another real ground.
        artifacts: folder of the new runs; by default ``artifacts-BUNDLE``.
        most_gib: maximum size of the unpacked bundle.
    """

    bundle: Path
    campaign: str | None = None
    figure: str | None = None
    spec: Path | None = None
    site: str | None = None
    testbed: str | None = None
    ground: str | None = None
    artifacts: Path | None = None
    most_gib: float = 16

    @property
    def folder(self) -> Path:
        """Folder of the new runs."""
        name = f"artifacts-{self.bundle.name.partition('.')[0]}"
        return Path(name) if self.artifacts is None else self.artifacts


def again(bundle: Path, campaign: str, asked: RerunRequest) -> Request:
    """Return the request to run the campaign `campaign` of an unpacked bundle, which must exist
    until it has run. Paths in its file are replaced with paths in the bundle. UserError: a file is
    missing, or simulated runs would be compared with measured runs."""
    file = _file(bundle, campaign)
    if not file.is_file():
        raise UserError(f"the bundle holds no file of the campaign {campaign}")
    # Use only files of the bundle: an absolute path would name a file of this machine.
    body = portable(read_mapping(file, _CAMPAIGN))
    made_on = str(body.get("ground", "sim"))
    if asked.ground not in (None, made_on) and "sim" in (asked.ground, made_on):
        raise UserError(
            f"the bundle's runs are of ground {made_on}, and what is simulated is never "
            "compared with what was measured as if it were the same",
            where=f"--ground {asked.ground}",
        )
    if asked.spec is not None:
        if not asked.spec.is_file():
            raise no_spec(asked.spec).at("--spec")
        body["spec"] = str(asked.spec.resolve())
    if asked.site is not None:
        body["spec"] = str(_on_site(bundle, file, str(body.get("spec") or ""), asked.site))
    ours = own_notebook(str(body.get("notebook") or "none"))
    if ours is not None:  # Hotbed's own notebook is preferred to the bundle's untrusted one
        body["notebook"] = str(ours)
    file.write_text(dump(body))
    made = _jobs(bundle, campaign)
    return Request(
        str(file),
        asked.figure,
        asked.testbed,
        asked.folder,
        _controllers(bundle, made),
        asked.ground,
        _constants(bundle, campaign, made),
    )


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
    """Return the model's constants of a campaign's runs; None for the default constants. UserError:
    the constants are not in the bundle, or the runs used several."""
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
        usual = ", and its usual ones" if len(known) > len(names) else ""
        raise UserError(
            f"the runs of the campaign {campaign} were made on several constants of the model "
            f"({', '.join(names)}{usual}), and a rerun uses one",
            do="run it by hotbed run --model, into another --artifacts",
        )
    return files[0] if files else None


def _on_site(bundle: Path, campaign: Path, spec: str, site: str) -> Path:
    """Write the spec with another site into the bundle's folder, and return its path."""
    if not spec:
        raise UserError(
            f"{campaign.stem} needs no testbed", where=f"--site {site}", do="leave it out"
        )
    body = read_mapping(resolve(spec, campaign), _SPEC)
    body["site"] = {"kind": site}
    made = bundle / "specs" / f"on-{site}-{Path(spec).name}"
    made.write_text(dump(body))
    load_spec(made)
    return made


def stated(bundle: Path, campaign: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a campaign's file in an unpacked bundle, which `again` runs, and the campaign from the
    record of its runs. UserError: either cannot be read."""
    said = read_mapping(_file(bundle, campaign), _CAMPAIGN)
    return said, portable(recorded(bundle / "artifacts" / campaign)["campaign"])


def missing(bundle: Path, campaign: str) -> Iterator[str]:
    """Yield the files that a bundled campaign names and the bundle lacks. UserError: the campaign's
    file cannot be read."""
    body = read_mapping(_file(bundle, campaign), _CAMPAIGN)
    for key, place in (("spec", "specs"), ("notebook", "notebooks")):
        last = Path(str(body.get(key) or "")).name
        ours = key == "notebook" and own_notebook(last) is not None
        if last and not ours and not (bundle / place / last).is_file():
            yield f"{place}/{last}"


def require(bundle: Path, campaign: str) -> None:
    """Raise unless a campaign can be run again from a bundle. UserError: the reason why it cannot
    be run."""
    loaded = load_campaign(_file(bundle, campaign))
    for name in missing(bundle, campaign):
        raise UserError(f"campaigns/{campaign}.yaml names {name}, which is not there")
    if loaded.spec:
        load_spec(bundle / "specs" / Path(loaded.spec).name)
    _constants(bundle, campaign, _jobs(bundle, campaign))


def is_exact(file: Path) -> bool:
    """Return True if runs of a campaign's file must equal the bundle's bit by bit: they are
    simulated and contain no times of this machine."""
    from campaigns.engine.kind import Computed
    from campaigns.papers.registry import kind_of

    campaign = load_campaign(file)
    if campaign.ground != "sim":
        return False
    ground = kind_of(campaign).grounds["sim"]
    return not (isinstance(ground, Computed) and ground.seconds_count)
