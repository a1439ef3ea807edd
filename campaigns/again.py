"""A campaign that is run again from an unpacked bundle; `campaigns.bundled` puts it there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from campaigns.bundled import Job, jobs, portable
from campaigns.campaign_file import ROOT, load_campaign, resolve
from campaigns.mos.profile.points import ELSEWHERE
from campaigns.session import Request
from controllers.registry import FOREIGN
from schemas.errors import UserError
from schemas.yaml_file import dump, read_mapping
from testbed.simulated.parameters import ModelParameters, load_parameters
from testbed.spec import load_spec


@contextmanager
def profiles_of(bundle: Path) -> Iterator[None]:
    """Cells plan with the measured points of an unpacked bundle, not with Hotbed's of that name,
    also those in processes of their own."""
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
    """How a campaign of a bundle is run again: `request` is what `hotbed run` would get; the
    bundle's runs are of `ground`."""

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
    """The campaign `campaign` of an unpacked bundle, to be run into `artifacts`.

    Args:
        bundle: the folder that it is unpacked to; it must stay until the campaign has run. Its
            campaign's file is made to name what is there.
        campaign: its name.
        artifacts: a folder that is not the one with the original runs.
        figure: only the cells that feed it.
        spec: another testbed's file than the one in the bundle.
        site: another kind of site than the spec's, without options.
        testbed: another testbed than the spec's name.
        ground: another one than the campaign's, also of real machines.

    Raises:
        UserError: the bundle does not hold what is needed, or what is simulated would be held
            against what was measured.
    """
    file = bundle / "campaigns" / f"{campaign}.yaml"
    if not file.is_file():
        raise UserError(f"the bundle holds no file of the campaign {campaign}.")
    # Only files of the bundle: a path would name those of this machine.
    body = portable(read_mapping(file, "a campaign is a mapping with name, grids and more"))
    made_on = str(body.get("ground", "sim"))
    if ground not in (None, made_on) and "sim" in (ground, made_on):
        raise UserError(
            f"--ground {ground}: the bundle's runs are of ground {made_on}, and what is simulated "
            "is never compared with what was measured as if it were the same."
        )
    if spec is not None:
        if not spec.is_file():
            raise UserError(f"--spec {spec}: there is no such file.")
        body["spec"] = str(spec.resolve())
    if site is not None:
        body["spec"] = str(_on_site(bundle, file, str(body.get("spec") or ""), site))
    ours = ROOT / "notebooks" / Path(str(body.get("notebook") or "none")).name
    if ours.is_file():  # a stranger's notebook is not run where Hotbed has it itself
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
    """What the bundled runs of a campaign were to do: other campaigns of the bundle may have had
    constants and controllers of their own."""
    return list(jobs(sorted((bundle / "artifacts" / campaign).glob("*/attempt-*"))))


def _controllers(bundle: Path, made: Sequence[Job]) -> Path | None:
    folder = bundle / "controllers"
    for policy in folder.rglob("policy.py"):
        (policy.parent / FOREIGN).write_text("It came with a bundle, and runs confined.\n")
    return folder if folder.is_dir() and any(job.get("controllers_dir") for job in made) else None


def _constants(bundle: Path, campaign: str, made: Sequence[Job]) -> Path | None:
    """The constants of the model that a campaign's runs were made on; None: the usual ones.

    Raises:
        UserError: they are not in the bundle, or there are several.
    """
    names = sorted({Path(str(job["model"])).name for job in made if job.get("model")})
    files = [bundle / "models" / name for name in names]
    for file in files:
        if not file.is_file():
            raise UserError(
                f"the runs of the campaign {campaign} were made on the model's constants in "
                f"{file.name}, which are not there any more."
            )
    known = [load_parameters(file) for file in files]
    if not all(job.get("model") for job in made):
        known.append(ModelParameters())
    if any(one != known[0] for one in known):
        raise UserError(
            f"the runs of the campaign {campaign} were made on several constants of the model "
            f"({', '.join(names)}{', and its usual ones' if len(known) > len(names) else ''}), and "
            "it is run again on one: run it by hotbed run --model, into another --artifacts."
        )
    return files[0] if files else None


def missing(bundle: Path, campaign: str) -> Iterator[str]:
    """Files that a bundled campaign is made of and that the bundle does not hold.

    Raises:
        UserError: the campaign's file cannot be read.
    """
    file = bundle / "campaigns" / f"{campaign}.yaml"
    body = read_mapping(file, "a campaign is a mapping with name, grids and more")
    for key, place in (("spec", "specs"), ("notebook", "notebooks")):
        last = Path(str(body.get(key) or "")).name
        ours = key == "notebook" and (ROOT / place / last).is_file()
        if last and not ours and not (bundle / place / last).is_file():
            yield f"{place}/{last}"


def require(bundle: Path, campaign: str) -> None:
    """Require that a campaign can be run again from a bundle.

    Raises:
        UserError: says why it cannot.
    """
    loaded = load_campaign(bundle / "campaigns" / f"{campaign}.yaml")
    for name in missing(bundle, campaign):
        raise UserError(f"campaigns/{campaign}.yaml names {name}, which is not there.")
    if loaded.spec:
        load_spec(bundle / "specs" / Path(loaded.spec).name)
    _constants(bundle, campaign, _jobs(bundle, campaign))


def _on_site(bundle: Path, campaign: Path, spec: str, site: str) -> Path:
    """The spec with another site, as a file in the bundle's folder."""
    if not spec:
        raise UserError(f"--site {site}: {campaign.stem} needs no testbed: leave it out.")
    body = read_mapping(resolve(spec, campaign), "a spec is a mapping with name, groups and store")
    body["site"] = {"kind": site}
    made = bundle / "specs" / f"on-{site}-{Path(spec).name}"
    made.write_text(dump(body))
    load_spec(made)
    return made


def is_exact(asked: Again) -> bool:
    """Whether its results must be those of the bundle to the bit: they are simulated, and no
    seconds of this machine are among them."""
    from campaigns.kinds.kind import Computed
    from campaigns.kinds.registry import kind_of

    if asked.ground != "sim":
        return False
    kind = kind_of(load_campaign(Path(str(asked.request.campaign))))
    ground = kind.grounds[asked.ground]
    return not (isinstance(ground, Computed) and ground.seconds_count)
