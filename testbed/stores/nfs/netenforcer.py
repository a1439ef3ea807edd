"""A host's network enforcement: apply, check and remove it.

    python3 -m testbed.stores.nfs.netenforcer apply|check|remove [FILE]

FILE (- is standard input) holds the host's part of the network parameters, or null for none
(docs/prioritymeister.md, "On a testbed"). Prints a JSON object. Exits with 1 and a sentence if the
kernel refuses or other rules are in force. Runs on every host as the unit ``hotbed-netenforcer``:
stopping the unit removes everything.

A file keeps the device's earlier settings until they are restored: the site's shaping, and the
segment size (buckets and strict priority act on whole segments, so these are single frames).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schemas.durable import write_file
from schemas.errors import HotbedError, UserError
from testbed.stores.nfs import readback, shaping
from testbed.stores.nfs.wire import ETHERNET_MTU, frame_of

KEPT = Path("/run/hotbed/netenforcer.json")
FILE = Path("/etc/hotbed/netenforcer.json")
Run = Callable[..., str]


class EnforcerError(HotbedError):
    """Error: the kernel refused, or the rules in force differ from the requested ones."""


@dataclass(frozen=True)
class Before:
    """A device's earlier settings: its root's token bucket (rate bytes/s, burst bytes, latency us;
    None: the kernel's default), the most segments per packet, and the largest packet (bytes)."""

    device: str
    root: Mapping[str, float] | None
    segments: int
    mtu: int = ETHERNET_MTU


def run(*argv: str, text: str | None = None, check: bool = True) -> str:
    """Run a command and return its output. EnforcerError: the command is missing or fails (if
    `check`)."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": path, "LC_ALL": "C"},
            timeout=60,
        )
    except FileNotFoundError as error:
        raise EnforcerError(f"the program {argv[0]} is missing: install it.") from error
    if check and done.returncode != 0:
        said = " ".join(done.stderr.split())[:300] or "no message"
        raise EnforcerError(f"{' '.join(argv)[:80]} failed: {said}.")
    return done.stdout


def device_to(addresses: set[str], run: Run = run) -> str:
    """Return the device through which packets to these addresses leave. UserError: there are
    several devices, or the addresses are this host's own."""
    devices = set()
    for address in sorted(addresses):
        route = json.loads(run("ip", "-j", "route", "get", address.split("/")[0]))[0]
        devices.add(route["dev"])
    if len(devices) != 1 or "lo" in devices:
        raise UserError(
            f"flows leave by {', '.join(sorted(devices))}: one device other than lo must lead "
            "to all destinations"
        )
    found: str = devices.pop()
    return found


def before(device: str, run: Run = run) -> Before:
    """Return the settings of a device that we have not changed. UserError: the device has foreign
    queueing, which we could not restore."""
    shown = json.loads(run("tc", "-j", "qdisc", "show", "dev", device) or "[]")
    roots = [qdisc for qdisc in shown if qdisc.get("root")]
    root = None
    for qdisc in roots:
        if qdisc["kind"] == "tbf":
            options = qdisc["options"]
            root = {key: float(options[key]) for key in ("rate", "burst", "lat")}
        elif qdisc["handle"] != "0:":
            raise UserError(
                f"device {device} has queueing of somebody else at its root ({qdisc['kind']} "
                f"{qdisc['handle']})",
                do=f"remove it first (tc qdisc del dev {device} root)",
            )
    link = json.loads(run("ip", "-d", "-j", "link", "show", "dev", device))[0]
    segments, mtu = link.get("gso_max_segs", 65535), link.get("mtu", ETHERNET_MTU)
    return Before(device, root, int(segments), int(mtu))


def read(device: str, run: Run = run) -> shaping.ShapingState:
    """Return the state installed on a device and in our table."""
    return readback.installed(
        run("tc", "-j", "qdisc", "show", "dev", device),
        run("tc", "class", "show", "dev", device),
        run("tc", "filter", "show", "dev", device, "parent", "1:", check=False),
        run("nft", "-j", "list", "table", "ip", shaping.TABLE, check=False),
    )


def _flows(host: Mapping[str, Any]) -> tuple[shaping.ShapedFlow, ...]:
    try:
        return shaping.flows_of(host)
    except KeyError as error:
        raise UserError(f"{error} is missing", where="network parameters") from error
    except (TypeError, ValueError) as error:
        raise UserError(error, where="network parameters") from error


def _target(host: Mapping[str, Any], kept: Before) -> shaping.ShapingState:
    link = float(host["rate"])
    # The site's own shaping stands for the wire: its rate is an upper limit.
    rate = min(link, kept.root["rate"]) if kept.root else link
    return shaping.wanted(host, rate, frame_of(kept.mtu))


def apply(host: Mapping[str, Any], run: Run = run, keep: Path = KEPT) -> dict[str, Any]:
    """Put a host's parameters into force, replacing earlier ones; check them afterwards. UserError:
    the parameters, or the device's queueing, are wrong; nothing was changed. EnforcerError: the
    kernel refused; everything was removed again."""
    flows = _flows(host)
    if not flows:
        return {"changed": remove(run, keep)["changed"], "device": None, "flows": 0}
    device = device_to({target for flow in flows for _, target in flow.between}, run)
    kept = load(keep)
    if kept is not None and kept.device != device:
        remove(run, keep)
        kept = None
    fresh = kept is None
    kept = kept or before(device, run)
    state = _target(host, kept)
    if not fresh and not readback.differences(state, read(device, run)):
        return {"changed": False, "device": device, "flows": len(flows)}
    keep.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(keep, json.dumps(asdict(kept)))
    try:
        _install(state, device, frame_of(kept.mtu), run)
        wrong = readback.differences(state, read(device, run))
    except HotbedError:
        remove(run, keep)
        raise
    if wrong:
        remove(run, keep)
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise EnforcerError(f"device {device}: after it was applied {wrong[0]}{more}.")
    return {"changed": True, "device": device, "flows": len(flows)}


def _install(state: shaping.ShapingState, device: str, frame: int, run: Run) -> None:
    run("ip", "link", "set", "dev", device, "gso_max_segs", "1")
    # Delete first: `replace` keeps a root of the same kind and handle, with all classes below.
    run("tc", "qdisc", "del", "dev", device, "root", check=False)
    run("tc", "-batch", "-", text="\n".join(shaping.tc_commands(state, device, frame)) + "\n")
    run("nft", "-f", "-", text=shaping.nft_commands(state))


def check(host: Mapping[str, Any] | None, run: Run = run, keep: Path = KEPT) -> list[str]:
    """Return differences between kernel and parameters (None: nothing may be in force)."""
    kept = load(keep)
    flows = _flows(host) if host is not None else ()
    table = run("nft", "-j", "list", "table", "ip", shaping.TABLE, check=False)
    if host is None or not flows:
        said = [f"table ip {shaping.TABLE} is not ours"] if table.strip() else []
        return said + ([f"device {kept.device} is enforced"] if kept else [])
    if kept is None:
        return ["nothing is in force"]
    return readback.differences(_target(host, kept), read(kept.device, run))


def remove(run: Run = run, keep: Path = KEPT) -> dict[str, Any]:
    """Remove everything and restore the earlier settings; safe to repeat."""
    kept = load(keep)
    had_table = bool(run("nft", "-j", "list", "table", "ip", shaping.TABLE, check=False).strip())
    if had_table:
        run("nft", "delete", "table", "ip", shaping.TABLE)
    if kept is None:
        return {"changed": had_table, "device": None}
    run("tc", "qdisc", "del", "dev", kept.device, "root", check=False)
    run("ip", "link", "set", "dev", kept.device, "gso_max_segs", str(kept.segments))
    if kept.root is not None:
        restore_bucket(kept.device, kept.root, run)
    keep.unlink()
    return {"changed": True, "device": kept.device}


def restore_bucket(device: str, root: Mapping[str, float], run: Run) -> None:
    """Restore a token bucket as tc showed it: tc rounds both what it sets and what it shows."""
    give = dict(root)
    for _ in range(4):
        rate, burst, lat = (round(give[key]) for key in ("rate", "burst", "lat"))
        bucket = ("rate", f"{8 * rate}bit", "burst", str(burst), "latency", f"{lat}us")
        run("tc", "qdisc", "replace", "dev", device, "root", "tbf", *bucket)
        shown = before(device, run).root
        if shown is None or shown == root:
            return
        for key in ("burst", "lat"):
            give[key] += root[key] - shown[key]


def load(keep: Path = KEPT) -> Before | None:
    """Return the earlier settings of the device, None if we have not changed any device."""
    try:
        return Before(**json.loads(keep.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise EnforcerError(f"{keep} cannot be read ({error}): remove it.") from error


def _parameters(path: Path) -> Mapping[str, Any] | None:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text()
        found: Mapping[str, Any] | None = json.loads(text)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"is not JSON: {error}", where=path) from error
    return found


def main(arguments: list[str]) -> int:
    """Run apply, check or remove; see the module's docstring."""
    verb = arguments[0] if arguments else ""
    path = Path(arguments[1]) if len(arguments) > 1 else FILE
    try:
        if verb == "apply":
            host = _parameters(path)
            if host is None:
                raise UserError("is missing", where=path, do="write the host's parameters there")
            answer = apply(host)
        elif verb == "check":
            answer = {"differences": check(_parameters(path))}
        elif verb == "remove":
            answer = remove()
        else:
            raise UserError(
                f"there is no verb {verb!r}" if verb else "no verb is given",
                allowed="apply, check or remove, and the parameters' file",
            )
    except HotbedError as error:
        print(f"netenforcer: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
