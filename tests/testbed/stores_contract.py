"""Contract of the COSBench driver's stores, on the real stores of a testbed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from testbed.ssh import Shell

PROGRAM = "/tmp/stores.test"

# Keys are read on the node into the environment, never into a command line.
RUN = """
import json, os, urllib.parse
tenant = json.load(open({path!r}))
around = ",".join(urllib.parse.urlsplit(url).netloc for url in tenant["proxies"])
def swift():
    return (
        f"swift timeout=60000;proxies={{around}} swauth username={{tenant['user']}};"
        f"password={{tenant['key']}};auth_url={{tenant['auth_url']}}"
    )
def s3():
    access = tenant.get("accesskey") or tenant["user"]
    secret = tenant.get("secretkey") or tenant["key"]
    endpoint = tenant.get("endpoint") or tenant["proxies"][0]
    return (
        f"s3 timeout=60000;proxies={{around}};path_style_access=true;endpoint={{endpoint}};"
        f"accesskey={{access}};secretkey={{secret}}"
    )
os.environ["HOTBED_SWIFT"] = "|".join((swift, s3)[kind == "s3"]() for kind in {kinds!r})
os.execv({program!r}, ["stores.test", "-test.v", "-test.run", "TestRealStoresKeepTheContract"])
"""


def keep_the_contract(shell: Shell, tenant: str, kinds: tuple[str, ...], folder: Path) -> None:
    """Assert that stores keep the contract of in-process ones, with listings, from a client node.

    Args:
        shell: shell on the client.
        tenant: file with a tenant's keys on the client.
        kinds: ``swift`` or ``s3``, or both.
        folder: build folder of the program."""
    program = folder / "stores.test"
    subprocess.run(
        ["../tools/go", "test", "-c", "-o", str(program), "./cosbench/store"],
        cwd=Path(__file__).parents[2] / "dataplane",
        env=os.environ | {"CGO_ENABLED": "0"},
        check=True,
    )
    keep = f"umask 077; cat > {PROGRAM}; chmod 700 {PROGRAM}"
    script = RUN.format(path=tenant, kinds=kinds, program=PROGRAM)
    try:
        shell.run(["sh", "-c", keep], input=program.read_bytes(), timeout_s=60)
        said = shell.run(["python3", "-c", script], check=False, timeout_s=240).text
    finally:
        shell.run(["rm", "-f", PROGRAM])
    for kind in kinds:
        assert f"--- PASS: TestRealStoresKeepTheContract/{kind}" in said, said
