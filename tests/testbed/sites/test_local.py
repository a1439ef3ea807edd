"""Contract of the local site, on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schemas.errors import RemoteError
from testbed.sites.contract import State, Testbed
from testbed.sites.local import LocalSite
from testbed.spec import TestbedSpec
from testbed.ssh import SshShell
from tests.errors import raises
from tests.testbed.sites.conformance import SiteConformance
from tests.testbed.sites.local_support import (
    break_node,
    everything_on_the_machine,
    local_site,
    shell,
    small_spec,
)

pytestmark = [pytest.mark.local, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def site() -> Iterator[LocalSite]:
    found = local_site()
    for name in found.names():
        found.release(name)
    yield found
    for name in found.names():
        found.release(name)
    assert everything_on_the_machine() == []


@pytest.fixture(scope="module")
def spec() -> TestbedSpec:
    return small_spec()


class TestLocalSite(SiteConformance):
    def test_nodes_answer_and_are_named(self, up: Testbed) -> None:
        for node in up.nodes:
            answer = shell(up, node.name).run(["sh", "-c", "hostname; date +%Z; id -un"])
            assert answer.text.split() == [node.name, "UTC", "root"]

    def test_nodes_know_each_other(self, up: Testbed) -> None:
        answer = shell(up, "admin").run(["getent", "ahostsv4", "osd1"])
        assert answer.text.split()[0] == up.node("osd1").address
        shell(up, "admin").run(["ping", "-c", "1", "-W", "2", "osd1"])

    def test_systemd_runs_whole(self, up: Testbed) -> None:
        for node in up.nodes:
            state = shell(up, node.name).run(
                ["systemctl", "is-system-running", "--wait"], check=False
            )
            assert state.text.strip() == "running", node.name

    def test_a_wrong_host_key_is_refused(self, up: Testbed) -> None:
        lines = up.known_hosts.read_text().splitlines()
        keys = [line.split(" ", 1)[1] for line in lines]
        names = [line.split(" ", 1)[0] for line in lines]
        assert len(set(keys)) == len(up.nodes)
        wrong = up.directory / "wrong_known_hosts"
        pairs = zip(names, keys[1:] + keys[:1], strict=True)
        wrong.write_text("".join(f"{name} {key}\n" for name, key in pairs))
        target = shell(up, "admin").target
        from dataclasses import replace

        with raises(RemoteError, "Host key"):
            SshShell(replace(target, known_hosts=wrong, control_dir=None)).run(["true"])

    def test_passwords_are_refused(self, up: Testbed) -> None:
        settings = shell(up, "admin").run(["sshd", "-T"]).text.splitlines()
        assert "passwordauthentication no" in settings
        assert "permitrootlogin without-password" in settings

    @pytest.mark.parametrize(
        "state", ["stopped", "node gone", "disk gone", "link gone", "link down"]
    )
    def test_a_broken_node_is_named_by_its_part_and_mended(self, site, spec, up, state):
        shell(up, "osd1").run(["sh", "-c", "echo kept > /srv/kept; sync"])
        break_node(site, spec.name, "osd1", state)
        status = site.status(spec.name)
        assert (status.state, status.nodes["osd1"]) == (State.FAILED, state)
        assert shell(up, "admin").run(["hostname"]).text == "admin\n"
        site.provision(spec)
        assert site.status(spec.name).state is State.READY
        assert shell(up, "osd1").run(["cat", "/srv/kept"]).text == "kept\n"

    def test_what_fills_a_root_does_not_fill_the_host(self, spec: TestbedSpec, up: Testbed) -> None:
        limit = spec.groups[1].root_size
        osd0 = shell(up, "osd0")
        write = ["dd", "if=/dev/zero", "of=/var/log/fill", "bs=1M", f"count={2 * limit >> 20}"]
        full = osd0.run(write, check=False, timeout_s=90.0)
        assert full.returncode != 0 and b"No space left on device" in full.stderr
        assert (up.directory / "nodes/osd0/files.img").stat().st_blocks * 512 <= limit
        shell(up, "osd1").run(["sh", "-c", "echo kept > /var/log/kept; sync"])
        osd0.run(["sh", "-c", "rm /var/log/fill; echo kept > /var/log/kept; sync"])

    def test_a_cut_link_cuts(self, site: LocalSite, spec: TestbedSpec, up: Testbed) -> None:
        site.link(spec.name, "osd0", False)
        ping = ["ping", "-c", "1", "-W", "1", "osd0"]
        assert shell(up, "admin").run(ping, check=False).returncode != 0
        site.link(spec.name, "osd0", True)
        shell(up, "admin").run(["ping", "-c", "1", "-W", "3", "osd0"])
