"""Exporter of a testbed's metrics for Prometheus: the unit hotbed-metrics on the admin node.

It listens on one address, answers only ``GET /metrics`` with the right bearer token, and serves a
few connections at once. It samples at most once a second, however many ask, and ends its probes
when nobody has asked for a while. The distribution's python3-prometheus-client writes the format.
"""

from __future__ import annotations

import hmac
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from schemas.errors import HotbedError
from testbed.agent.contract import AgentConfig, load_config, osd_names
from testbed.agent.reach import use_control_dir
from testbed.agent.sampler import CLIENT, NodeSample, Sampler, open_sampler
from testbed.agent.top import steps_of

YOUNG_S = 1.0
"""Age up to which a sample is given again."""
IDLE_S = 30.0
"""Time without a question after which the probes end."""
CONNECTIONS, TIMEOUT_S = 8, 10.0
_PHASES = ("sense", "decide", "act")


class Metric(NamedTuple):
    """An exported metric. `source` is its name in a sample, `factor` its unit there."""

    about: str
    labels: tuple[str, ...] = ()
    source: str = ""
    factor: float = 1.0
    counter: bool = False


def _metrics() -> dict[str, Metric]:
    node, osd, name = ("node",), ("osd", "node"), ("controller",)
    found = {
        "node_up": Metric("1 if the node answers the sampler, else 0.", node),
        "node_pressure_ratio": Metric("Signal of controllers.", node, "pressure", 0.01),
        "node_disk_busy_ratio": Metric("Busy share of the busiest disk.", node, "disk_util", 0.01),
        "node_disk_queue_requests": Metric("Requests in the disks.", node, "disk_queue"),
        "node_cpu_cores": Metric("Used processors.", node, "cpu_cores"),
        "node_disturbed": Metric("1 if a disturbance runs on the node.", node, "hot"),
        "store_up": Metric("1 if the store answers, else 0."),
        "osd_up": Metric("1 if the OSD answers, else 0.", osd),
        "osd_primary_affinity_ratio": Metric("Primary affinity.", osd, "primary_affinity"),
        "osd_reweight_ratio": Metric("Reweight.", osd, "reweight"),
        "osd_primaries": Metric("Placement groups that the OSD leads.", osd, "primaries"),
        "osd_read_latency_seconds": Metric("Mean latency of reads.", osd, "op_r_latency_s"),
        "osd_pressure_ratio": Metric("Pressure of the OSD alone.", osd, "osd_pressure", 0.01),
        "controller_steps_total": Metric("Steps of a running controller.", name, counter=True),
        "controller_actions_total": Metric("Actions since the first look.", name, counter=True),
        "controller_last_step_timestamp_seconds": Metric("Time of the last step.", name),
        "controller_step_seconds": Metric("Last step's phases.", ("controller", "phase")),
        "sample_timestamp_seconds": Metric("Time of this sample."),
    }
    for word, source in (
        *(("disk_read", "disk_read_mb_s"), ("disk_write", "disk_write_mb_s")),
        *(("network_receive", "net_rx_mb_s"), ("network_transmit", "net_tx_mb_s")),
    ):
        about = f"{word.replace('_', ' ').capitalize()} rate."
        found[f"node_{word}_bytes_per_second"] = Metric(about, node, source, 1e6)
    for word in ("read", "write"):
        about = f"Clients' {word}s, as the OSDs count them"
        rate = Metric(f"{about}.", (), f"{word}_mb_s", 1e6)
        found[f"client_{word}_bytes_per_second"] = rate
        found[f"client_{word}_operations_per_second"] = Metric(f"{about}.", (), f"{word}_iops")
        latency = Metric(f"{about}: mean latency.", (), f"{word}_latency_s")
        found[f"client_{word}_latency_seconds"] = latency
    return {f"hotbed_{name}": metric for name, metric in found.items()}


METRICS = _metrics()
"""All exported metrics by name."""
Series = dict[str, dict[tuple[str, ...], float]]


def series(config: AgentConfig, sample: NodeSample, steps: Mapping[str, Any]) -> Series:
    """Return the values of all metrics by labels."""
    found: Series = {name: {} for name in METRICS}
    hosts = {f"osd.{osd}": node for osd, node in osd_names(config).items()}
    for name, metric in METRICS.items():
        places: dict[tuple[str, ...], str] = {(): CLIENT}
        if metric.labels[:1] == ("node",):
            places = {(node.name,): node.name for node in config.nodes}
        elif metric.labels[:1] == ("osd",):
            places = {(osd[4:], node): osd for osd, node in hosts.items()}
        for labels, place in places.items() if metric.source else ():
            value = sample.values.get(place, {}).get(metric.source)
            if value is not None:
                found[name][labels] = value * metric.factor
    for node in config.nodes:
        found["hotbed_node_up"][node.name,] = float(node.name not in sample.lost)
    for osd, host in hosts.items():
        found["hotbed_osd_up"][osd[4:], host] = float(not {osd, "store"} & sample.lost.keys())
    found["hotbed_store_up"][()] = float("store" not in sample.lost)
    found["hotbed_sample_timestamp_seconds"][()] = sample.wall
    for controller, step in steps.items():
        if step:
            found["hotbed_controller_steps_total"][controller,] = step["step"] + 1
            found["hotbed_controller_actions_total"][controller,] = step["actions_seen"]
            found["hotbed_controller_last_step_timestamp_seconds"][controller,] = step["at"]
            for phase in _PHASES:
                if step[f"{phase}_s"] is not None:
                    found["hotbed_controller_step_seconds"][controller, phase] = step[f"{phase}_s"]
    return found


def text_of(found: Series) -> bytes:
    """Return metrics in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    class Families:
        def collect(self) -> Iterator[Any]:
            for name, values in found.items():
                metric = METRICS[name]
                kind = CounterMetricFamily if metric.counter else GaugeMetricFamily
                family = kind(name, metric.about, labels=metric.labels)
                for labels, value in values.items():
                    family.add_metric(labels, value)
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families())
    return bytes(generate_latest(registry))


class Metrics:
    """The current metrics as text. A question starts the probes, and `rest` ends them."""

    def __init__(
        self,
        config: AgentConfig,
        open_sampler: Callable[[AgentConfig], Sampler] = open_sampler,
        steps: Callable[[AgentConfig], Iterator[Mapping[str, Any]]] = steps_of,
        ticks: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config, self._open, self._ticks, self._sleep = config, open_sampler, ticks, sleep
        self._steps = steps(config)
        self._lock = threading.Lock()
        self._sampler: Sampler | None = None
        self._awake = False
        self._text, self._taken, self._asked = b"", 0.0, 0.0

    def text(self) -> bytes:
        """Return metrics that are at most `YOUNG_S` old."""
        with self._lock:
            self._asked = self._ticks()
            if self._sampler is None:
                self._sampler = self._open(self._config)
            elif not self._awake:
                self._sampler.start()
            if not self._awake:
                self._awake = True
                self._sleep(YOUNG_S)  # rates need an interval
            elif self._ticks() - self._taken < YOUNG_S:
                return self._text
            sample = self._sampler.sample()
            self._text = text_of(series(self._config, sample, next(self._steps)))
            self._taken = self._ticks()
            return self._text

    def rest(self) -> None:
        """End the probes if nobody has asked for `IDLE_S`."""
        with self._lock:
            if self._sampler and self._awake and self._ticks() - self._asked > IDLE_S:
                self._sampler.close()
                self._awake = False


class MetricsServer(ThreadingHTTPServer):
    """HTTP server of the metrics, with at most `CONNECTIONS` connections at once."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], token: str, metrics: Metrics) -> None:
        self.token, self.metrics = token, metrics
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, MetricsHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread; close it at once if too many are open."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, at most for `TIMEOUT_S` in all, however slowly it sends."""
        killer = threading.Timer(TIMEOUT_S, _cut, [request])
        killer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            killer.cancel()
            self._free.release()

    def service_actions(self) -> None:
        """Let the metrics rest; called twice a second."""
        self.metrics.rest()


def _cut(request: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        request.shutdown(socket.SHUT_RDWR)


class MetricsHandler(BaseHTTPRequestHandler):
    """Answer to one request."""

    server: MetricsServer

    def do_GET(self) -> None:
        """Send the metrics, or refuse."""
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self._answer(401, b"a bearer token is needed\n")
        elif self.path != "/metrics":
            self._answer(404, b"only /metrics is here\n")
        else:
            try:
                self._answer(200, self.server.metrics.text())
            except HotbedError as error:
                self._answer(503, f"{error}\n".encode())

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        if code == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: Prometheus asks every few seconds."""


def main(arguments: list[str]) -> int:
    """Serve until a signal; arguments are ``ADDRESS PORT TOKEN_FILE``."""
    address, port, token = arguments
    use_control_dir(None)
    metrics = Metrics(load_config())
    server = MetricsServer((address, int(port)), Path(token).read_text().strip(), metrics)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
