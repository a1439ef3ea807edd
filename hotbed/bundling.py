"""Bundles and reruns for the verbs and for notebooks: `analysis.bundle` handles the results of
runs, `campaigns.bundled` the files behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hotbed.claims import claims
from schemas.errors import UserError, unknown

if TYPE_CHECKING:
    from analysis.bundle.publish import Bundled
    from analysis.bundle.rerun import RerunComparison
    from analysis.bundle.verify import Opened
    from campaigns.bundled import RerunRequest
    from campaigns.engine.dask import Workers
    from campaigns.engine.display import CampaignResult
    from campaigns.engine.estimate import DryRunReport
    from campaigns.engine.session import Request
    from schemas.bundle import Entry, Manifest

Progress = Callable[[str, float], None]


def _quiet(_phase: str, _share: float) -> None:
    """Ignore progress."""


def bundle(
    campaign: str,
    out: Path | None = None,
    *,
    artifacts: Path = Path("artifacts"),
    ground: str | None = None,
    about: Path | None = None,
    hide: Sequence[str] = (),
    with_logs: bool = False,
    progress: Progress = _quiet,
) -> Bundled:
    """Bundle a campaign, a comparison or a paper's campaigns. UserError: there is no such campaign,
    `out` cannot be written, or the bundle would have content that must not be published."""
    from analysis.bundle.publish import build
    from campaigns.bundled import require, sources
    from schemas.yaml_file import read_mapping

    what = "it is a mapping with title, authors and more (docs/bundle.md)"
    return build(
        artifacts,
        campaign,
        Path(f"{campaign}.hotbed.zip") if out is None else out,
        sources,
        about=None if about is None else read_mapping(about, what),
        hidden=hide,
        ground=ground,
        with_logs=with_logs,
        require=require,
        progress=progress,
    )


@dataclass(frozen=True)
class Rerun:
    """A campaign that was run again, and its comparison with the bundle."""

    result: CampaignResult
    compared: RerunComparison

    @property
    def ok(self) -> bool:
        """True if the campaign finished, could be compared, and nothing contradicts the bundle."""
        return self.result.ok and self.compared.ok


def foreign_code(manifest: Manifest) -> tuple[Entry, ...]:
    """Return the foreign programs in a bundle: controllers, and notebooks that are not part of
    Hotbed. Neither `verify` nor a dry run loads them."""
    from campaigns.engine.campaign_file import own_notebook

    return tuple(
        entry
        for entry in manifest.files
        if entry.path.startswith("controllers/")
        or (entry.path.startswith("notebooks/") and own_notebook(entry.path) is None)
    )


def listed(code: Sequence[Entry]) -> list[str]:
    """Return each file with its size and hash, one line per file."""
    return [f"{one.path}: {one.bytes} bytes, SHA-256 {one.sha256}" for one in code]


@dataclass(frozen=True)
class Ready:
    """A campaign of an unpacked bundle.

    Attributes:
        bundled: the folder of its runs.
        request: the rerun's request.
        code: see `foreign_code`.
    """

    bundled: Path
    request: Request
    code: tuple[Entry, ...] = ()

    @property
    def consent(self) -> str:
        """Consent text: the effects of trusting the code of a bundle."""
        from controllers.confine import outlook

        lines = ["The bundle holds code that is not Hotbed's:", *listed(self.code)]
        lines.append(
            f"Controllers run {outlook()}; those of a testbed run on its admin node, as the user "
            "nobody without network."
        )
        if any(one.path.startswith("notebooks/") for one in self.code):
            lines.append("On a testbed notebooks run too: as you, with your network and files.")
        return "\n".join(lines)

    def dry_run(self, workers: Workers | None = None) -> DryRunReport:
        """Return the cells that would run; write nothing."""
        from campaigns.engine import session

        return session.dry_run(self.request, workers=workers, in_process=True)

    def run(self, workers: Workers | None = None, *, trust_code: bool = False) -> Rerun:
        """Run or resume the campaign, and compare; see `hotbed run`. UserError: the testbed, the
        disk or the workers have a problem, or there is code that is not trusted."""
        if self.code and not trust_code:
            names = ", ".join(one.path for one in self.code)
            raise UserError(
                f"nothing was run, because the bundle holds code that is not Hotbed's: {names}",
                do="read that code, then give --trust-code",
            )
        from analysis.bundle.rerun import compare
        from campaigns.bundled import is_exact
        from campaigns.engine import session

        result = session.run(self.request, in_process=True, workers=workers)
        exact = is_exact(Path(str(self.request.campaign)))
        compared = compare(self.bundled, self.request.artifacts / result.campaign, exact=exact)
        return Rerun(result, compared)


@contextmanager
def unpacked(asked: RerunRequest, progress: Progress = _quiet) -> Iterator[Ready]:
    """Prepare a bundle's campaign for another run within the block. UserError: it is no bundle, or
    unsafe to open; it was changed since it was made; it lacks the requested campaign; or its own
    runs are in the folder of the new ones."""
    from analysis.bundle.archive import GIB
    from analysis.bundle.rerun import shares_runs
    from analysis.bundle.verify import changed, opened
    from campaigns.bundled import again, profiles_of
    from hotbed.contained import look

    if not asked.bundle.is_file():
        raise UserError("there is no such file", where=asked.bundle)
    look(asked.bundle, most_gib=asked.most_gib, progress=progress)
    with opened(asked.bundle, most_bytes=int(asked.most_gib * GIB), progress=progress) as found:
        wrong = next(changed(found), None)
        if wrong is not None:
            raise UserError(
                f"its file {wrong.file} is not as its manifest says",
                where=asked.bundle,
                do="fetch the bundle again; hotbed verify lists all differences",
            )
        name = _campaign(found.manifest, asked.campaign)
        bundled = found.folder / "artifacts" / name
        if shares_runs(bundled, asked.folder / name):
            raise UserError(
                "holds the bundle's own runs, which prove nothing next to it",
                where=asked.folder / name,
                do="give --artifacts another folder",
            )
        try:
            request = replace(again(found.folder, name, asked), claims=claims)
            with profiles_of(found.folder):
                yield Ready(bundled, request, foreign_code(found.manifest))
        except UserError as error:
            raise UserError(_for_readers(str(error), found, asked)) from error


def _for_readers(sentence: str, found: Opened, asked: RerunRequest) -> str:
    """Return a sentence with bundle file names instead of the temporary folder, and with the
    bundle's own spec if the sentence asks for a spec."""
    from campaigns.bundled import lacks_options

    said = sentence.replace(f"{found.folder}/", f"{asked.bundle.name}: ")
    specs = [name for name in found.found if name.startswith("specs/")]
    if "hotbed up SPEC" in said and specs and asked.spec is None and asked.site is None:
        said += f" SPEC is in the bundle: unzip {asked.bundle} {' '.join(specs)}."
        if any(lacks_options(found.folder / spec) for spec in specs):
            said += (
                " Options that name machines or people were left out of it: write yours into its "
                "site.options, or give another spec by --spec, or --site local."
            )
    return said


def _campaign(manifest: Manifest, wanted: str | None) -> str:
    if wanted is None and len(manifest.campaigns) == 1:
        return manifest.campaigns[0]
    if wanted in manifest.campaigns:
        return str(wanted)
    if wanted is not None:
        raise unknown("campaign", wanted, manifest.campaigns, where="--campaign")
    raise UserError(
        "the bundle holds several campaigns",
        where="--campaign",
        allowed=", ".join(manifest.campaigns),
    )
