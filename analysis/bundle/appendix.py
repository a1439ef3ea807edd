"""The appendix that a reviewer reads first: what is claimed, how each claim is checked, how long
that takes, and what does not hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.bundle.derive import Derived
from analysis.bundle.experiments import Part, Ran, duration, first_look
from analysis.claims import NOTE_SEPARATOR, SINGLE_RUN
from analysis.pages import render
from analysis.report import format_interval, format_value, shared_notes
from schemas.bundle import About, Manifest
from schemas.claim import ClaimResult

MARKDOWN = "APPENDIX.md"
HTML = "appendix.html"

HUMAN_MIN_PER_COMMAND = 1
"""Minutes of a person that a command is taken to cost: to type it and to read how it ended."""

_WHY = {
    "direction": "the direction holds, the size does not or cannot be vouched for on this ground",
    "inconclusive": "the interval includes no effect",
    "not reproduced": "the effect is the other way",
}
_WHY_SAME = {
    "inconclusive": "the interval lies neither within the tolerance nor outside it",
    "not reproduced": "the values are not the same: the interval lies outside the tolerance",
}
_COUNTED = {
    "reproduced": "reproduced",
    "direction": "in direction only",
    "inconclusive": "undecided",
    "not reproduced": "not reproduced",
    "not run": "not tested here",
}
_HOLDS = {
    "reproduced": "yes",
    "direction": "in direction",
    "inconclusive": "undecided",
    "not reproduced": "no",
    "not run": "not tested",
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
        """yes, in direction, undecided, no, or not tested."""
        return _HOLDS[self.claim.verdict]

    @property
    def why(self) -> str:
        """Why it does not hold, or not as stated; nothing of one that does."""
        if self.claim.measured is not None and self.claim.ci95 is None:
            return SINGLE_RUN
        words = _WHY | (_WHY_SAME if self.claim.kind == "within" else {})
        return words.get(self.claim.verdict, "")


@dataclass(frozen=True)
class Untested:
    """Claims that no run in the bundle supports, for one reason, and what makes such runs."""

    numbers: tuple[str, ...]
    why: str
    command: str


def numbered(derived: Derived, campaigns: Sequence[Ran]) -> list[Claimed]:
    """The claims in the report's order, from C1 on."""
    shared = shared_notes(derived.tested)
    return [
        Claimed(
            number=f"C{index}",
            claim=claim,
            expected=expected(claim),
            measured=_measured(claim),
            # What no run supports is often of cells that the bundle's campaigns do not have.
            command=command_of(
                claim.figure, derived, () if claim.verdict == "not run" else campaigns
            ),
            notes=tuple(
                note
                for note in (claim.note.split(NOTE_SEPARATOR) if claim.note else [])
                if note not in (*shared, SINGLE_RUN)
            ),
        )
        for index, claim in enumerate(derived.claims, 1)
    ]


def command_of(figure: str, derived: Derived, campaigns: Sequence[Ran]) -> str:
    """What makes the runs behind a claim again (``6a``, or several: ``6a, 8a``).

    Args:
        figure: what the claim names.
        derived: has the commands of the paper's catalogue.
        campaigns: those of the bundle, where its runs tell of the claim: then it is one of them
            that is run again, whole where no cells are of that figure alone. None of them where no
            run tells of it: then it is what the catalogue names.
    """
    names = [name.strip() for name in figure.split(",")]
    if campaigns:
        found = [_again(name, campaigns) for name in names]
        if None in found:
            found = [_rerun(one, campaigns) for one in campaigns]
    else:
        # A catalogue may have a claim's figure (7a) as a whole (7).
        known = derived.commands
        found = [known.get(name) or known.get(name.rstrip("abcd")) for name in names]
    return "; ".join(dict.fromkeys(filter(None, found))) or "hotbed rerun BUNDLE"


def _again(figure: str, campaigns: Sequence[Ran]) -> str | None:
    for one in campaigns:
        name = one.option(figure)
        if name is not None:
            return f"{_rerun(one, campaigns)} --figure {name}"
    return None


def _rerun(one: Ran, campaigns: Sequence[Ran]) -> str:
    return "hotbed rerun BUNDLE" + (f" --campaign {one.campaign}" if len(campaigns) > 1 else "")


def expected(claim: ClaimResult) -> str:
    """What a claim expects, with its tolerance as the values that count."""
    none = claim.no_effect
    if claim.paper_value is None:
        if none is None:
            return "an effect as stated, with a 95 % interval that excludes no effect"
        return _beyond(none, claim)
    value = format_value(claim.paper_value, claim.unit)
    if none is not None and claim.size is False and claim.kind != "within":
        told = "" if claim.paper_value == none else f" ({value} in the paper)"
        return f"{_beyond(none, claim)}{told}"
    if claim.kind == "within":
        room = claim.tolerance * abs(claim.paper_value)
        if not room:
            return f"{value}, both ends of the 95 % interval too"
        return f"the whole 95 % interval in {_between(claim.paper_value, room, claim.unit)}"
    word = {"about": "", "at_least": "at least ", "at_most": "at most "}[claim.kind]
    if none is None or not claim.tolerance:
        return f"{word}{value}"
    room = claim.tolerance * abs(claim.paper_value - none)
    if claim.kind == "about":
        return f"{value} ({_between(claim.paper_value, room, claim.unit)})"
    # More of an effect that lowers a value is a lower one.
    further = claim.paper_value >= none
    room = -room if (claim.kind == "at_least") is further else room
    return f"{word}{value} ({format_value(claim.paper_value + room, claim.unit)} counts)"


def _beyond(none: float, claim: ClaimResult) -> str:
    side = "above" if claim.larger else "below"
    return f"{side} {format_value(none, claim.unit)}, the whole 95 % interval too"


def _between(value: float, room: float, unit: str) -> str:
    return format_interval((value - room, value + room), unit)


def untested(claims: Sequence[Claimed]) -> list[Untested]:
    """Claims without runs, those of one reason and one command together."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in claims:
        if one.claim.verdict == "not run":
            why = one.claim.note or "no runs of it"
            found.setdefault((why, one.command), []).append(one.number)
    return [Untested(tuple(numbers), why, command) for (why, command), numbers in found.items()]


def _measured(claim: ClaimResult) -> str:
    if claim.measured is None:
        return "–"
    value = format_value(claim.measured, claim.unit)
    interval = "no interval" if claim.ci95 is None else format_interval(claim.ci95, claim.unit)
    return f"{value} ({interval}), n = {claim.n}"


def _spec_of(first: Part | None, campaigns: Sequence[Ran]) -> str:
    """The bundle's spec of the testbed that the first look needs; nothing without one."""
    spec = next((one.spec for one in campaigns if first and one.campaign == first.campaign), "")
    return f"specs/{Path(spec).name}" if spec else ""


def documents(
    about: About, manifest: Manifest, derived: Derived, campaigns: Sequence[Ran]
) -> dict[str, bytes]:
    """APPENDIX.md and appendix.html."""
    claims = numbered(derived, campaigns)
    first = first_look(campaigns, [one.figure for one in derived.tested if one.ci95 is not None])
    shown = {
        "about": about,
        "manifest": manifest,
        "title": derived.title,
        "report": f"artifacts/{derived.folder.name}/report.html",
        "compared": manifest.comparison,
        "figures": derived.figures,
        "campaigns": campaigns,
        "claims": claims,
        "tested": [one for one in claims if one.claim.verdict != "not run"],
        "not_tested": [one for one in claims if one.claim.verdict == "not run"],
        "shared_notes": shared_notes(derived.tested),
        "counts": [
            (sum(one.claim.verdict == verdict for one in claims), words)
            for verdict, words in _COUNTED.items()
        ],
        "fallen": [
            one
            for verdict in ("not reproduced", "inconclusive", "direction")
            for one in claims
            if one.claim.verdict == verdict
        ],
        "untested": untested(claims),
        "first": first,
        "spec": _spec_of(first, campaigns),
        "simulated": bool(campaigns) and all(one.ground == "sim" for one in campaigns),
        "machine_s": sum(one.machine_s for one in campaigns),
        "human_min": HUMAN_MIN_PER_COMMAND,
    }
    return {
        name: render(
            template,
            shown,
            duration=duration,
            sentence=lambda text: text[:1].upper() + text[1:],
            cell=lambda text: " ".join(str(text).split()).replace("|", "\\|"),
        ).encode()
        for name, template in ((MARKDOWN, "appendix.md.j2"), (HTML, "appendix.html.j2"))
    }
