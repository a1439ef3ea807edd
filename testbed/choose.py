"""Selection of a testbed and of its nodes by name."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors import UserError, nearest, unknown
from testbed.faults import refuse_faults
from testbed.sites import kinds, open_site
from testbed.sites.contract import Node, Site, State, Testbed


def existing() -> list[tuple[Site, str]]:
    """Return every testbed that a site has a record of, with its site."""
    return [(site, name) for site in map(open_site, kinds()) for name in site.names()]


def choose(name: str | None = None, way: str = "--testbed {}") -> tuple[Site, str]:
    """Return the testbed called `name`, or without a name the only testbed. `way`: how a person
    names one, for the error. UserError: there is no testbed, none of that name, or more than one
    and no name."""
    found = existing()
    names = sorted({each for _, each in found})
    if name is not None:
        for site, each in found:
            if each == name:
                return site, each
        raise unknown("testbed", name, names, do="" if found else "`hotbed up SPEC` makes one")
    if not found:
        raise UserError("there is no testbed", do="`hotbed up SPEC` makes one")
    if len(found) > 1:
        raise UserError(
            "there is more than one testbed",
            allowed=", ".join(names),
            do=f"say which one, such as `{way.format(names[0])}`",
        )
    return found[0]


def choose_ready(name: str | None = None, way: str = "--testbed {}") -> tuple[Site, Testbed]:
    """Choose as in `choose`, but only a testbed that has been brought up completely. UserError: as
    `choose`, or as `ready`."""
    site, chosen = choose(name, way)
    return site, ready(site, chosen)


def ready(site: Site, name: str) -> Testbed:
    """Return the testbed called `name` on `site`. UserError: its state is not READY; the message
    says what is missing."""
    known, testbed = site.status(name), site.find(name)
    if known.state is State.ABSENT:
        raise UserError(
            f"there is no testbed {name!r} on site {site.kind}",
            do=(
                "bring it up with `hotbed up SPEC` and `hotbed deploy`, or name another with "
                "--testbed"
            ),
        )
    if testbed is None or known.state is not State.READY:
        refuse_faults(site.folder(name), name)  # which may be the reason
        raise UserError(
            f"testbed {name!r} on site {site.kind} is {known.state} ({known.detail})",
            do="`hotbed up SPEC` brings it up, `hotbed status` shows its nodes",
        )
    return testbed


def choose_partly(name: str | None = None) -> Testbed:
    """Choose as in `choose_ready`, for status and stop: nodes or links may be missing. UserError:
    as `choose`, or no node of the testbed is known yet."""
    site, chosen = choose(name)
    return site.find(chosen, partly=True) or ready(site, chosen)


def select(testbed: Testbed, text: str) -> tuple[Node, ...]:
    """Return the nodes that a comma list of names, groups, roles or ``all`` selects, in spec order.
    UserError: a word names nothing."""
    chosen: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        found = _named(testbed.nodes, word)
        if not found:
            names = [node.name for node in testbed.nodes]
            groups = list(dict.fromkeys(node.group for node in testbed.nodes))
            roles = sorted({role for node in testbed.nodes for role in node.roles})
            raise UserError(
                f"has no node, group or role {word!r}",
                where=f"testbed {testbed.name}",
                allowed=f"nodes {', '.join(names)}; groups {', '.join(groups)}; "
                f"roles {', '.join(roles)}",
                do=nearest(word, [*names, *groups, *roles]),
            )
        chosen |= found
    if not chosen:
        raise UserError("name at least one node, group or role, or `all`")
    return tuple(node for node in testbed.nodes if node.name in chosen)


def select_one(testbed: Testbed, text: str) -> Node:
    """Return the node that `text` selects. UserError: as `select`, or it is more than one."""
    first, *more = select(testbed, text)
    if more:
        names = ", ".join(node.name for node in (first, *more))
        raise UserError(f"{text!r} is more than one node ({names})", do="name one")
    return first


def _named(nodes: Sequence[Node], word: str) -> set[str]:
    """Return the nodes that a word names; a node's name wins over a group's, then a role's."""
    if word == "all":
        return {node.name for node in nodes}
    for found in (
        {node.name for node in nodes if node.name == word},
        {node.name for node in nodes if node.group == word},
        {node.name for node in nodes if word in node.roles},
    ):
        if found:
            return found
    return set()
