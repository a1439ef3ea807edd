"""Faults and loads that a person makes on a testbed: made, recorded, undone.

`faults.json` in the testbed's folder holds the faults in force. It is written before a fault is
made, so that every fault can be undone after any crash. `faults.jsonl` has a line with both times
for each fault that has ended. A process of its own undoes faults that have an end:
`python -m testbed.faults SITE TESTBED`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args

from schemas.durable import append_line, write_file
from schemas.errors import HotbedError, UserError
from schemas.locks import held, started
from testbed.ssh import require_success

if TYPE_CHECKING:
    from testbed.agent.contract import Agent
    from testbed.sites.contract import FaultSite, Node, Site, Testbed
    from testbed.ssh import Shell

RECORD, LOG = "faults.json", "faults.jsonl"
FaultKind = Literal["node", "link", "disk", "mon", "osd", "load"]
"""Kinds, in the order in which they are undone: daemons start only on a node that runs."""
LOAD_S = 86_400.0
"""Length of a load without an end."""
LOCK_S, AGENT_S, RETRY_S = 180.0, 120.0, 5.0
Settings = Mapping[str, float | bool | str]


@dataclass(frozen=True)
class Fault:
    """A fault, or a load by hand, on a node. `settings`: for a link ``cut``, ``rate`` (bits/s),
    ``delay`` (s) and ``loss`` (0 to 1); for a disk ``slow`` (a factor) and ``error``; for a load
    ``load`` (hotspot or background) and ``share`` (of the disk's reads a second). Times are
    seconds since the epoch; `until_s` None lasts until it is cleared. `keep`: the units that the
    fault's end starts, or the step of a disturbance plan that starts the load."""

    kind: FaultKind
    node: str
    settings: Settings
    since_s: float
    until_s: float | None = None
    keep: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def what(self) -> str:
        """Return the fault in words, without its times."""
        from testbed.spec.quantities import format_si  # here: `--help` needs no pydantic

        given, of = self.settings, f"of node {self.node}"
        amounts = (("rate", "bit/s", 1), ("delay", "s", 1), ("loss", "% of its packets", 100))
        limits = [
            f"a {key} of {format_si(scale * float(given[key]), unit)}"
            for key, unit, scale in amounts
            if key in given
        ]
        slow = [f"is {given['slow']:g} times as slow"] if "slow" in given else []
        error = ["fails every request"] if given.get("error") else []
        share = f" of {100 * float(given['share']):g} %" if "share" in given else ""
        return {
            "node": f"node {self.node} is stopped",
            "link": f"the link {of} {'is cut' if 'cut' in given else 'has ' + ', '.join(limits)}",
            "disk": f"the disk {of} {' and '.join(slow + error)}",
            "osd": f"the OSD {of} is killed",
            "mon": f"the monitor {of} is killed",
            "load": f"a {given.get('load')} load{share} reads the disk {of}",
        }[self.kind]

    def sentence(self, now_s: float | None = None) -> str:
        """Return the fault with its times, for people."""
        said = f"{self.what()} since {_clock(self.since_s)}"
        if self.until_s is None:
            return said
        over = (time.time() if now_s is None else now_s) >= self.until_s
        return f"{said}, {'overdue since' if over else 'until'} {_clock(self.until_s)}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields and the sentence."""
        shown = {each.name: getattr(self, each.name) for each in fields(self)[:-1]}
        return shown | {"settings": dict(self.settings), "sentence": self.sentence()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fault:
        """Return the fault of `as_json`. KeyError, TypeError, ValueError: it is something else."""
        values = {"keep": {}, **data}
        found = cls(*(values[each.name] for each in fields(cls)))
        found.sentence()  # ValueError, TypeError
        return found


def _clock(at_s: float) -> str:
    at, now = time.gmtime(at_s), time.gmtime()
    day = "" if at[:3] == now[:3] else "%d %b "
    return time.strftime(f"{day}%H:%M:%S UTC", at)


def in_force(folder: Path) -> list[Fault]:
    """Return the faults and loads by hand that are in force on the testbed with this folder, oldest
    first; overdue ones too. No node is asked. UserError: the record cannot be read."""
    return _FaultRecord.read(folder).faults


def faults_between(folder: Path, began_s: float, ended_s: float) -> list[Fault]:
    """Return every fault that was in force at any time between two times (seconds since the epoch),
    also those that have ended."""
    found = in_force(folder)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for line in (folder / LOG).read_text().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # cut off by a crash
                one = Fault.from_json(json.loads(line))
                found += [one] if (one.until_s or began_s) >= began_s else []
    return [one for one in found if one.since_s <= ended_s]


class FaultInForceError(UserError):
    """A fault by hand that must be undone first."""


def refuse_faults(folder: Path, name: str) -> None:
    """Raise if a fault or a load by hand is in force on the testbed `name`. FaultInForceError: the
    fault, and the command that undoes it."""
    found = in_force(folder)
    if found:
        more = f" ({len(found) - 1} more)" if found[1:] else ""
        undo = f"undo what was done by hand: `hotbed fault clear --testbed {name}`"
        raise FaultInForceError(f"{found[0].sentence()}{more}", where=f"testbed {name}", do=undo)


@dataclass
class _FaultRecord:
    """Content of `faults.json`. `watcher`: process (id and start) that undoes faults at their
    end."""

    folder: Path
    faults: list[Fault]
    watcher: tuple[int, str] | None = None

    @classmethod
    def read(cls, folder: Path) -> _FaultRecord:
        try:
            data = json.loads((folder / RECORD).read_text())
            pid, start = data["watcher"] or (0, "")
            faults = [Fault.from_json(one) for one in data["faults"]]
            return cls(folder, faults, (int(pid), str(start)) if pid else None)
        except (FileNotFoundError, NotADirectoryError):
            return cls(folder, [])
        except (OSError, ValueError, KeyError, TypeError) as error:
            do = "remove it, and repair the testbed with `hotbed up SPEC`"
            raise UserError(f"cannot be read ({error})", where=folder / RECORD, do=do) from error

    def save(self) -> None:
        faults = [one.as_json() | {"keep": one.keep} for one in self.faults]
        text = json.dumps({"faults": faults, "watcher": self.watcher}, indent=1)
        write_file(self.folder / RECORD, text + "\n")

    def end(self, fault: Fault, at_s: float) -> None:
        """Log a fault's end, then forget the fault: a crash between the two forgets nothing."""
        line = json.dumps(replace(fault, until_s=at_s).as_json()).encode()
        append_line(self.folder / LOG, line + b"\n")
        self.faults = [each for each in self.faults if each != fault]
        self.save()

    def of(self, kind: FaultKind, node: str) -> list[Fault]:
        return [one for one in self.faults if (one.kind, one.node) == (kind, node)]

    @property
    def timed(self) -> bool:
        """True if a fault has an end."""
        return any(one.until_s is not None for one in self.faults)

    def end_watcher(self) -> None:
        """End the process that undoes faults, unless it is this one."""
        pid, start = self.watcher or (0, "")
        if pid not in (0, os.getpid()) and started(pid) == start:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        self.watcher = None


# Active units of a store's daemons: own and ceph-ansible's, and cephadm's.
_UNITS = """systemctl list-units --plain --no-legend --type=service \
    --state=active,activating "ceph-$1@*.service" "ceph-*@$1.*.service" | cut -d ' ' -f 1"""
# systemd would restart a killed daemon; the stop prevents it.
_KILL = 'systemctl kill --signal=KILL "$@" 2>/dev/null || :; exec systemctl stop "$@"'
_START = 'systemctl reset-failed "$@" 2>/dev/null || :; exec systemctl start "$@"'
_REFUSED = {
    3: "has no interface towards the testbed's other nodes",
    4: "shapes its packets already (see `tc qdisc`), which a fault would change",
    5: "has no netem in its kernel: only --rate is possible",
}
"""Reasons by exit code of `_TC`."""
# $1: check, limit or free; $2: words of the limit; then addresses of other nodes. A queueing
# discipline with a handle other than 0: is somebody's.
_TC = r"""
set -eu
verb=$1 words=$2
shift 2
dev=$(ip -o route get "$1" | sed -n 's/.* dev \([^ ]*\).*/\1/p')
[ -n "$dev" ] || exit 3
root=$(tc qdisc show dev "$dev" root | sed -n '1s/^qdisc [^ ]* \([^ ]*\).*/\1/p')
if [ "$verb" = check ]; then
    case $root in 0: | "" | 5318:) ;; *) exit 4 ;; esac
    case $words in netem*) modprobe -q sch_netem || exit 5 ;; esac
    exit 0
fi
[ "$root" != 5318: ] || tc qdisc del dev "$dev" root
[ "$verb" = limit ] || exit 0
tc qdisc add dev "$dev" root handle 5318: prio bands 4
tc qdisc add dev "$dev" parent 5318:4 $words
for peer; do
    case $peer in *:*) ip="ipv6 u32 match ip6" to=128 ;; *) ip="ip u32 match ip" to=32 ;; esac
    tc filter add dev "$dev" parent 5318: protocol $ip dst "$peer/$to" flowid 5318:4
done
"""
_CANNOT = {
    "link": "links cannot be cut, because ssh needs them; --rate, --delay and --loss are possible",
    "disk": "disks cannot be made slow or faulty; `hotbed load start hotspot` makes one busy",
    "node": "nodes cannot be stopped and started",
}
"""Reasons by kind on a site that makes no faults."""


@dataclass(frozen=True)
class FaultMaker:
    """Maker of faults by hand on one testbed, and of their end. `watch` starts the process that
    undoes faults at their end, and returns its id."""

    site: Site
    testbed: Testbed
    agent: Agent
    shell_to: Callable[[Node], Shell]
    watch: Callable[[], int]
    clock: Callable[[], float] = time.time

    @classmethod
    def on(cls, site: Site, testbed: Testbed) -> FaultMaker:
        """Return the maker of faults on a testbed; its nodes may be stopped or cut off."""
        from testbed.client import agent_client
        from testbed.reach import shell_to

        def watch() -> int:
            command = [sys.executable, "-m", "testbed.faults", site.kind, testbed.name]
            none, root = subprocess.DEVNULL, Path(__file__).parents[1]
            # A session of its own: the terminal may be closed.
            return subprocess.Popen(
                command, stdin=none, stdout=none, stderr=none, cwd=root, start_new_session=True
            ).pid

        return cls(site, testbed, agent_client(testbed), lambda on: shell_to(testbed, on), watch)

    def inject(
        self,
        kind: FaultKind,
        nodes: Sequence[Node],
        settings: Settings,
        *,
        for_s: float | None = None,
        steps: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[Fault]:
        """Make a fault on each node, and return the faults; the same fault of a node is replaced.
        `steps`: by node, the step of a disturbance plan that starts the load. UserError, before
        any change: it is impossible here. HotbedError: it failed, and was undone on that node."""
        with self._recorded() as record:
            self._end(record, self._due(record))
            now, length = self.clock(), for_s or (LOAD_S if kind == "load" else None)
            made = []
            for node in nodes:
                units = self._check(record, kind, node, settings)
                keep = {"units": units, **(steps or {}).get(node.name, {})}
                made.append(Fault(kind, node.name, settings, now, length and now + length, keep))
            if for_s is not None and not record.watcher:
                pid = self.watch()
                record.watcher = (pid, started(pid) or "")
            for batch in _batches(made):
                for old in [old for one in batch for old in record.of(kind, one.node)]:
                    if kind in ("link", "disk"):
                        self._set(record, [old], False)
                    record.end(old, now)
                record.faults += batch
                record.save()
                try:
                    self._set(record, batch, True)
                except BaseException:  # Ctrl-C too
                    self._end(record, batch)
                    raise
            return made

    def clear(
        self, nodes: Collection[str] | None = None, kinds: Collection[str] = get_args(FaultKind)
    ) -> list[Fault]:
        """Undo the faults of `nodes` (by default all), also half-made ones, and return them.
        HotbedError: some could not be undone; they stay recorded."""
        if not (self.testbed.directory / RECORD).exists():
            return []
        with self._recorded() as record:
            wanted = [one for one in record.faults if nodes is None or one.node in nodes]
            chosen = [one for one in wanted if one.kind in kinds]
            failed = self._end(record, chosen)
        if failed:
            raise HotbedError(f"{'; '.join(failed)}; repeat `hotbed fault clear` later")
        return chosen

    def current(self) -> list[Fault]:
        """Undo the faults whose time is over, as far as possible; return those still in force."""
        if self._due(_FaultRecord.read(self.testbed.directory)):
            with self._recorded() as record:
                self._end(record, self._due(record))
        return in_force(self.testbed.directory)

    def keep_times(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Undo each fault at its end; return when no fault with an end is left."""
        failed = list[str]()
        while (self.testbed.directory / RECORD).exists():
            found = in_force(self.testbed.directory)
            ends = [one.until_s for one in found if one.until_s is not None]
            if ends and min(ends) > self.clock():
                sleep(min(1.0, min(ends) - self.clock()))
                continue
            with contextlib.suppress(HotbedError), self._recorded() as record:  # busy
                failed = self._end(record, self._due(record))
                if not record.timed:
                    return
            sleep(RETRY_S if failed else 0.0)

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[_FaultRecord]:
        """Hold the record's lock."""
        try:
            with held(self.testbed.directory / "faults.lock", LOCK_S):
                record = _FaultRecord.read(self.testbed.directory)
                if record.watcher and started(record.watcher[0]) != record.watcher[1]:
                    record.watcher = None
                yield record
        except BlockingIOError as error:
            busy = f"another command makes or undoes faults on testbed {self.testbed.name}"
            raise HotbedError(f"{busy}: try again") from error

    def _due(self, record: _FaultRecord) -> list[Fault]:
        now = self.clock()
        return [one for one in record.faults if one.until_s is not None and one.until_s <= now]

    def _end(self, record: _FaultRecord, chosen: Sequence[Fault]) -> list[str]:
        """Undo and forget `chosen`; return the reasons for those that could not be undone. A node
        that starts again meets its other faults again."""
        failed = list[str]()
        for batch in _batches(chosen):
            first = batch[0]
            try:
                if first.kind in ("node", "load") or not record.of("node", first.node):
                    self._set(record, batch, False)
                for other in record.faults if first.kind == "node" else ():
                    if other.node == first.node and other not in chosen:
                        self._set(record, [other], True)
            except (HotbedError, OSError) as error:
                why = str(error).rstrip(".")
                failed += [f"{fault.what()} still, because {why}" for fault in batch]
            else:
                for fault in batch:
                    record.end(fault, self.clock())
        if record.watcher and not record.timed:
            record.end_watcher()
            record.save()
        return failed

    def _check(
        self, record: _FaultRecord, kind: FaultKind, node: Node, settings: Settings
    ) -> list[str]:
        """Return the units that the end of a fault starts. UserError: it is impossible here."""
        site, name, where = self.site, self.testbed.name, f"testbed {self.testbed.name}"
        stopped = record.of("node", node.name)
        killed = [unit for old in record.of(kind, node.name) for unit in old.keep["units"]]
        if kind != "node" and stopped:
            raise UserError(f"node {node.name} is stopped", where=where, do="`hotbed fault clear`")
        if kind in ("osd", "mon"):
            carriers = ", ".join(each.name for each in self.testbed.with_role(kind))
            there = carriers or "link, disk, node: OSDs and monitors are Ceph's"
            units = {*killed, *self._units(kind, node)} if kind in node.roles else set()
            if not units:
                raise UserError(f"no {kind} of node {node.name} runs", where=where, allowed=there)
            return sorted(units)
        if kind == "load":
            others = self._others(record)
            if others is not None:
                raise UserError(f"{others} runs", where=where, do="wait for its end")
        elif not _makes_faults(site):
            if kind != "link" or "cut" in settings:
                raise UserError(f"on site {site.kind} {_CANNOT[kind]}", where=where)
            self._tc(node, "check", settings)
        elif kind == "link" and "cut" not in settings:
            site.check_link(name, node.name, packets="delay" in settings or "loss" in settings)
        elif kind == "disk" and not node.devices:
            raise UserError(f"node {node.name} has no disk of its own", where=where)
        elif kind == "disk" and "error" in settings and "osd" in node.roles:
            return sorted({*killed, *self._units("osd", node)})  # which may end of the errors
        elif kind == "node" and not stopped:
            state = site.status(name).nodes.get(node.name)
            if state not in ("running", "link down"):
                raise UserError(f"node {node.name} is {state}", where=where, do="`hotbed up SPEC`")
        return killed

    def _set(self, record: _FaultRecord, batch: Sequence[Fault], on: bool) -> None:
        """Make a recorded fault, or undo it, made or half-made. All recorded loads are set at once:
        with those of `batch`, or without them."""
        fault, site, name = batch[0], self.site, self.testbed.name
        node = self.testbed.node(fault.node)
        given: Settings = fault.settings if on else {}
        if fault.kind == "load":
            if on or self._others(record) is None:
                self._reload([one for one in record.faults if on or one not in batch])
            status = self.agent.call("disturb-status", {}, timeout_s=AGENT_S) if on else {}
            for load in status.get("loads", ()):
                if not load["alive"]:
                    raise HotbedError(f"the load of node {load['node']} ended: {load['said']}.")
        elif fault.kind == "link" and not _makes_faults(site):
            self._tc(node, "limit" if on else "free", given)
        elif fault.kind == "link" and _makes_faults(site):
            if "cut" in fault.settings:
                site.link(name, node.name, not on)
            else:
                rate, delay_s, loss = _limits(given)
                site.shape_link(name, node.name, bits_per_s=rate, delay_s=delay_s, loss=loss)
        elif fault.kind == "disk" and _makes_faults(site):
            slow = float(given.get("slow", 1.0))
            site.disk_fault(name, node.name, slow=slow, error="error" in given)
        elif fault.kind == "node" and _makes_faults(site):
            site.power(name, node.name, not on)
        if fault.keep["units"] and not (on and fault.kind == "disk"):
            argv = ["sh", "-c", _KILL if on else _START, "hotbed-faults", *fault.keep["units"]]
            self.shell_to(node).run(argv, timeout_s=AGENT_S)

    def _units(self, kind: str, node: Node) -> list[str]:
        return self.shell_to(node).run(["sh", "-c", _UNITS, "hotbed-faults", kind]).text.split()

    def _tc(self, node: Node, verb: str, settings: Settings) -> None:
        """Check, limit or free the node's packets to the testbed's other nodes."""
        rate, delay_s, loss = _limits(settings)
        words = f"tbf rate {rate or 0:.0f}bit burst 256kb latency 25ms"
        if delay_s or loss:
            words = f"netem limit 10000 delay {delay_s * 1e6:.0f}us loss {100 * loss:g}%"
            words += f" rate {rate:.0f}bit" if rate else ""
        peers = [each.address for each in self.testbed.nodes if each.name != node.name]
        argv = ["sh", "-c", _TC, "hotbed-faults", verb, words, *peers]
        done = self.shell_to(node).run(argv, check=False)
        if done.returncode in _REFUSED:
            raise UserError(_REFUSED[done.returncode], where=f"node {node.name}")
        require_success(done, f"tc on node {node.name}")

    def _others(self, record: _FaultRecord) -> str | None:
        """Return the disturbance of a campaign or notebook in words; None if there is none."""
        ours = {one.node for one in record.faults if one.kind == "load"}
        status = self.agent.call("disturb-status", {}, timeout_s=AGENT_S)
        loaded = {load["node"] for load in status["loads"]}
        if not status["running"] or (ours and loaded <= ours):
            return None
        return f"the disturbance of a campaign or notebook (nodes {', '.join(sorted(loaded))})"

    def _reload(self, faults: Sequence[Fault]) -> None:
        """Run the loads among `faults` as one disturbance plan, which also ends them."""
        steps, longest = list[Mapping[str, Any]](), 0.0
        for one in faults:
            left_s = (one.until_s or 0.0) - self.clock()
            if one.kind == "load" and left_s > 0:
                stop = {"t_s": left_s, "argv": None, "rate_iops": None}
                steps += [one.keep, {**one.keep, **stop}]
                longest = max(longest, left_s)
        payload = {"plan": steps, "max_s": longest + 60} if steps else {}
        self.agent.call(f"disturb-{'start' if steps else 'stop'}", payload, timeout_s=AGENT_S)


def _batches(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Return faults in the order in which they are undone: one by one, but all loads at once."""
    ordered = sorted(faults, key=lambda one: get_args(FaultKind).index(one.kind))
    loads = [one for one in ordered if one.kind == "load"]
    return [[one] for one in ordered if one.kind != "load"] + ([loads] if loads else [])


def _limits(settings: Settings) -> tuple[float | None, float, float]:
    """Return rate, delay and loss of a link's fault."""
    rate, delay_s, loss = (float(settings.get(name, 0)) for name in ("rate", "delay", "loss"))
    return rate or None, delay_s, loss


def _makes_faults(site: Site) -> TypeGuard[FaultSite]:
    from testbed.sites.contract import FaultSite

    return isinstance(site, FaultSite)


def forget(site: Site, name: str) -> None:
    """End faults by hand before the testbed `name` is removed: those that would outlive it are
    undone as far as its nodes answer."""
    with contextlib.suppress(HotbedError, OSError):
        record = _FaultRecord.read(site.folder(name))
        record.end_watcher()
        testbed = site.find(name, partly=True)
        if record.faults and testbed is not None and not _makes_faults(site):
            FaultMaker.on(site, testbed).clear()


if __name__ == "__main__":
    from testbed.sites import open_site

    here = open_site(sys.argv[1])
    found = here.find(sys.argv[2], partly=True)
    if found is not None:
        FaultMaker.on(here, found).keep_times()
