"""Exporter for Prometheus: its format, its guards, and the dashboard that reads it."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from testbed.agent import metrics
from testbed.agent.contract import AgentConfig
from testbed.agent.metrics import CONNECTIONS, IDLE_S, METRICS, Metrics, MetricsServer
from testbed.agent.sampler import NodeSample
from tests.testbed.agent.channels import node
from tests.waiting import until

CONFIG = AgentConfig("t", "ceph", (node("a", 0), node('b"\n', 1)), ("bench",))
VALUES = {
    "a": {
        **{"pressure": 97.0, "disk_read_mb_s": 2.0, "disk_write_mb_s": 1.0, "disk_util": 50.0},
        **{"disk_queue": 3.0, "net_rx_mb_s": 1.0, "net_tx_mb_s": 1.0, "cpu_cores": 0.5, "hot": 1.0},
    },
    "osd.0": {
        **{"primary_affinity": 0.1, "reweight": 1.0, "primaries": 9.0, "op_r_latency_s": 0.4},
        "osd_pressure": 60.0,
    },
    "client": {
        **{"read_mb_s": 7.0, "write_mb_s": 0.0, "read_iops": 3.0, "write_iops": 0.0},
        **{"read_latency_s": 0.02, "write_latency_s": 0.03},
    },
}
STEP = {"step": 4, "at": 990.0, "actions_seen": 2, "sense_s": 0.1, "decide_s": 0.01, "act_s": 0.5}


class FakeSampler:
    """Sampler that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def sample(self) -> NodeSample:
        self.calls.append("sample")
        return NodeSample(1000.0, VALUES, {'b"\n': "is down", "osd.1": "is down"})

    def close(self) -> None:
        self.calls.append("close")


class World:
    """A sampler on a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sampler = FakeSampler()
        self.opened = 0
        steps = itertools.repeat({"dlr": STEP, "new": {}})
        self.metrics = Metrics(
            CONFIG, self.open, lambda config: steps, lambda: self.now, self.sleep
        )

    def open(self, config: AgentConfig) -> FakeSampler:
        self.opened += 1
        return self.sampler

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def server(world) -> Iterator[MetricsServer]:
    found = MetricsServer(("127.0.0.1", 0), "secret", world.metrics)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def ask(server: MetricsServer, token: str | None, path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*server.server_address, timeout=20)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def families(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in METRICS[sample.name].labels)
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_prometheus_reads_every_metric(server):
    code, text = ask(server, "secret")
    assert code == 200
    found = families(text)
    assert set(found) == set(METRICS)
    assert found["hotbed_node_up"] == {("a",): 1, ('b"\n',): 0}
    assert found["hotbed_node_disk_read_bytes_per_second"] == {("a",): 2e6}
    assert found["hotbed_node_pressure_ratio"]["a",] == pytest.approx(0.97)
    assert found["hotbed_osd_primary_affinity_ratio"] == {("0", "a"): 0.1}
    assert found["hotbed_osd_up"] == {("0", "a"): 1, ("1", 'b"\n'): 0}
    assert found["hotbed_client_read_bytes_per_second"] == {(): 7e6}
    assert found["hotbed_controller_steps_total"] == {("dlr",): 5}
    assert found["hotbed_controller_step_seconds"]["dlr", "act"] == 0.5


def test_only_the_right_token_and_path_are_answered(server, world):
    for token in (None, "", "secre", "Secret"):
        assert ask(server, token)[0] == 401
    assert world.opened == 0
    assert ask(server, "secret", "/")[0] == 404


def test_connections_are_few_and_end(server, monkeypatch):
    refused = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)
    monkeypatch.setattr(metrics, "TIMEOUT_S", 60.0)
    idle = [socket.create_connection(server.server_address) for _ in range(CONNECTIONS)]
    with pytest.raises(refused):
        ask(server, "secret")
    for connection in idle:
        connection.close()

    def answered() -> bool:
        try:
            return ask(server, "secret")[0] == 200
        except refused:
            return False

    until(answered)
    monkeypatch.setattr(metrics, "TIMEOUT_S", 0.5)
    slow = socket.create_connection(server.server_address, timeout=60)
    with slow, pytest.raises(refused):  # a byte now and then does not keep a connection open
        for _ in range(600):
            slow.sendall(b"G")
            time.sleep(0.1)


def test_samples_are_shared_and_probes_rest_while_nobody_asks(world):
    for _ in range(3):
        world.metrics.text()
    assert world.sampler.calls == ["sample"]
    world.now += 5
    world.metrics.text()
    world.now += IDLE_S
    world.metrics.rest()
    assert world.sampler.calls == ["sample", "sample"]
    world.now += 1
    for _ in range(2):
        world.metrics.rest()
    world.metrics.text()
    assert world.sampler.calls == ["sample", "sample", "close", "start", "sample"]
    assert world.opened == 1


def test_dashboard_and_docs_know_exactly_what_is_exported(root):
    board = json.loads((root / "playbooks/roles/metrics/files/hotbed-dashboard.json").read_text())
    targets = [target for panel in board["panels"] for target in panel["targets"]]
    queried = set()
    for target in targets:
        names = re.findall(r"\b(hotbed_\w+)", target["expr"])
        queried |= set(names)
        labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
        labels += re.findall(r"[{,]\s*(\w+)\s*[=!]", target["expr"])
        known = {label for name in names for label in METRICS[name].labels}
        assert {*labels} <= known, target
    assert queried == set(METRICS)
    assert set(re.findall(r"`(hotbed_\w+)`", (root / "docs/metrics.md").read_text())) == queried
