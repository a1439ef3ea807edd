"""Make missing users of Ceph's object gateway, with keys that the gateway draws.

    python3 - '{"tenants": [...], "gateway": HOST, "address": IP, "port": 7480, "wait_s": 60}'

prints {"keys": {tenant: {"accesskey": ..., "secretkey": ...}}, "changed": [words]}. An error is one
sentence on standard error and exit code 1. The script acts as this machine's gateway with the
gateway's key, and no key is ever on a command line.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
NO_SUCH_USER = 22  # radosgw-admin's exit code for a missing user
COMMAND_S = 60

Admin = Callable[..., "tuple[int, str, str]"]


class Failed(Exception):
    """Failure with a message of one sentence."""


def admin_of(gateway: str) -> Admin:
    """Return a function that runs radosgw-admin as a gateway."""
    identity = f"client.rgw.{gateway}"
    keyring = f"/var/lib/ceph/radosgw/ceph-rgw.{gateway}/keyring"

    def admin(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["radosgw-admin", "--name", identity, "--keyring", keyring, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        return done.returncode, done.stdout, done.stderr

    return admin


def wait(url: str, seconds: float, look: Callable[[str], object] | None = None) -> None:
    """Wait until a gateway answers.

    Raises:
        Failed: it does not answer in time.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            (look or _look)(url)
            return
        except OSError as error:
            if time.monotonic() > end:
                raise Failed(f"the object gateway at {url} does not answer: {error}") from error
        time.sleep(0.5)


def _look(url: str) -> None:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError as error:  # an HTTP error is an answer too
        error.close()


def user(admin: Admin, tenant: str) -> tuple[dict[str, str], bool]:
    """Return a user's keys, and True if the user was made now.

    Raises:
        Failed: the gateway's store cannot look up or make the user.
    """
    code, out, err = admin("user", "info", "--uid", tenant)
    made = code != 0
    if made and code != NO_SUCH_USER:
        raise Failed(f"user {tenant} cannot be asked for: {_last(err)}")
    if made:
        code, out, err = admin("user", "create", "--uid", tenant, "--display-name", tenant)
        if code != 0:
            raise Failed(f"user {tenant} cannot be made: {_last(err)}")
    try:
        pair = json.loads(out)["keys"][0]
        return {"accesskey": pair["access_key"], "secretkey": pair["secret_key"]}, made
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise Failed(f"user {tenant} has no keys") from error


def ensure(admin: Admin, tenants: list[str]) -> dict[str, object]:
    """Return all users' keys and the changes; make missing users."""
    keys, changed = {}, []
    for tenant in tenants:
        if not NAME.fullmatch(tenant):
            raise Failed(f"{tenant!r} names no tenant: 1 to 40 lower-case letters, digits or -")
        keys[tenant], made = user(admin, tenant)
        if made:
            changed.append(f"user {tenant} made")
    return {"keys": keys, "changed": changed}


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "radosgw-admin said nothing"


def main(arguments: list[str]) -> int:
    """Run the script and return its exit code; see the module."""
    parameters = json.loads(arguments[0])
    try:
        wait(f"http://{parameters['address']}:{parameters['port']}/", parameters["wait_s"])
        print(json.dumps(ensure(admin_of(parameters["gateway"]), parameters["tenants"])))
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
