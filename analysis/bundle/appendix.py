"""The appendix that a reviewer reads first: what is claimed, how each claim is checked, how long
that takes, and what does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.bundle.derive import Derived
from analysis.bundle.experiments import Ran, duration, first_look
from analysis.claims import NOTE_SEPARATOR
from analysis.report import format_interval, format_value, shared_notes
from schemas.bundle import About, Manifest
from schemas.claim import ClaimResult

MARKDOWN = "APPENDIX.md"
HTML = "appendix.html"

HUMAN_MIN_PER_COMMAND = 1
"""Minutes of a person that a command is taken to cost: to type it and to read how it ended."""

_TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
_HOLDS = ("reproduced", "direction")
_WHY = {
    "direction": "the direction holds, the size does not or cannot be vouched for on this ground",
    "inconclusive": "the interval includes no effect",
    "not reproduced": "the effect is the other way, or the values are not the same",
    "not run": "no runs support it",
}


@dataclass(frozen=True)
class Claimed:
    """A claim with its number, as the appendix shows it."""

    number: str
    claim: ClaimResult
    expected: str
    measured: str
    command: str
    notes: tuple[str, ...]

    @property
    def holds(self) -> str:
        """yes, in direction, or no."""
        return {"reproduced": "yes", "direction": "in direction"}.get(self.claim.verdict, "no")


def numbered(derived: Derived, campaigns: Sequence[Ran]) -> list[Claimed]:
    """The claims in the report's order, from C1 on."""
    shared = shared_notes(derived.claims)
    return [
        Claimed(
            number=f"C{index}",
            claim=claim,
            expected=expected(claim),
            measured=_measured(claim),
            command=command_of(claim.figure, derived, campaigns),
            notes=tuple(
                note
                for note in (claim.note.split(NOTE_SEPARATOR) if claim.note else [])
                if note not in shared
            ),
        )
        for index, claim in enumerate(derived.claims, 1)
    ]


def command_of(figure: str, derived: Derived, campaigns: Sequence[Ran]) -> str:
    """What makes the runs behind a claim again (``6a``, or several: ``6a, 8a``): of the bundle's
    own campaigns where one feeds its figure, else what the paper's catalogue names."""
    found = dict.fromkeys(
        command
        for name in figure.split(",")
        if (command := _command(name.strip(), derived, campaigns)) is not None
    )
    return "; ".join(found) or "hotbed rerun BUNDLE"


def _command(figure: str, derived: Derived, campaigns: Sequence[Ran]) -> str | None:
    for one in campaigns:
        if one.feeds(figure):
            which = f" --campaign {one.campaign}" if len(campaigns) > 1 else ""
            return f"hotbed rerun BUNDLE{which} --figure {figure}"
    return next((f.command for f in derived.figures if f.id == figure and f.command), None)


def expected(claim: ClaimResult) -> str:
    """What a claim expects, with its tolerance, in words."""
    if claim.paper_value is None:
        return "an effect as stated, with a 95 % interval that excludes no effect"
    value = format_value(claim.paper_value, claim.unit)
    room = f"{100 * claim.tolerance:g} %"
    return {
        "about": f"{value}, within {room} of the effect",
        "at_least": f"at least {value}, less {room} of the effect",
        "at_most": f"at most {value}, and {room} of the effect",
        "within": f"the whole 95 % interval within {room} of {value}",
    }[claim.kind]


def _measured(claim: ClaimResult) -> str:
    if claim.measured is None:
        return "–"
    value = format_value(claim.measured, claim.unit)
    interval = "no interval" if claim.ci95 is None else format_interval(claim.ci95, claim.unit)
    return f"{value} ({interval}), n = {claim.n}"


def documents(
    about: About, manifest: Manifest, derived: Derived, campaigns: Sequence[Ran]
) -> dict[str, bytes]:
    """APPENDIX.md and appendix.html."""
    from jinja2 import Environment, FileSystemLoader

    claims = numbered(derived, campaigns)
    shown = {
        "about": about,
        "manifest": manifest,
        "title": derived.title,
        "report": f"artifacts/{derived.folder.name}/report.html",
        "compared": manifest.comparison,
        "figures": derived.figures,
        "campaigns": campaigns,
        "claims": claims,
        "shared_notes": shared_notes(derived.claims),
        "fallen": [one for one in claims if one.claim.verdict not in _HOLDS],
        "halved": [one for one in claims if one.claim.verdict == "direction"],
        "first": first_look(campaigns),
        "simulated": bool(campaigns) and all(one.ground == "sim" for one in campaigns),
        "machine_s": sum(one.machine_s for one in campaigns),
        "why": _WHY,
        "human_min": HUMAN_MIN_PER_COMMAND,
    }
    made = {}
    for name, template in ((MARKDOWN, "appendix.md.j2"), (HTML, "appendix.html.j2")):
        environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=name == HTML,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters["duration"] = duration
        environment.filters["sentence"] = lambda text: text[:1].upper() + text[1:]
        environment.filters["cell"] = lambda text: " ".join(str(text).split()).replace("|", "\\|")
        made[name] = environment.get_template(template).render(shown).encode()
    return made
