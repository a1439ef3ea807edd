"""Instances from .npz files, from tables (CSV, Parquet), and from the map of a Ceph, dumped or live
(docs/ursa.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from controllers.common.parameters import read
from controllers.ursa.instance import Float32, Instance, Int32
from controllers.ursa.io import instance_from, load_instance
from controllers.ursa.live import (
    UrsaParameters,
    add_interval,
    build,
    empty_window,
    osd_loads,
    pg_loads,
)
from schemas.errors import UserError, nearest
from testbed.stores.ceph.connection import parse
from testbed.stores.ceph.perf import pg_rates, report_of
from testbed.stores.ceph.pgs import parse_osd_map, parse_pg_dump
from testbed.stores.contract import Activity, Observation, OpRates, Pg, observation_from_json

LOADS = ("primary_load", "secondary_load")
DUMPS = {"osd_dump": "ceph osd dump", "osd_tree": "ceph osd tree", "pg_dump": "ceph pg dump"}
"""Files of a Ceph's folder, without .json, and the commands that print them with --format json."""
LATER = "pg_dump_later"
"""A second `ceph pg dump`: loads are the operations since the first one."""
RATE = "operations/s"


def reader(
    path: Path | None, testbed: str | None, parameters: Mapping[str, object]
) -> Callable[[], Instance]:
    """Return a function that reads the instance at `path`, or of the Ceph of a testbed. UserError:
    both or neither is given, or there are `parameters` (of `UrsaParameters`) for no Ceph."""
    if (path is None) == (testbed is None):
        raise UserError("give an instance or --testbed", where="hotbed ursa plan")
    chosen = read(UrsaParameters, "ursa", parameters)
    if path is None:
        return lambda: _of_testbed(testbed, chosen)
    if parameters and not path.is_dir():
        raise UserError("only a Ceph has parameters", where=path, do="leave out --parameter")
    return partial(read_instance, path, chosen)


def read_instance(path: Path, chosen: UrsaParameters | None = None) -> Instance:
    """Return the instance of an .npz file, of a table of partitions with a table `nodes` next to
    it, or of a folder with a Ceph's dumps. UserError: there is none."""
    if path.is_dir():
        return _of_dumps(path, chosen or UrsaParameters())
    return _of_tables(path) if path.suffix in (".csv", ".parquet") else load_instance(path)


# ---- A Ceph ----


def _of_testbed(name: str | None, chosen: UrsaParameters) -> Instance:
    from testbed.choose import choose_ready
    from testbed.client import agent_client

    seconds = chosen.observe_s
    agent = agent_client(choose_ready(name)[1])
    seen = agent.call("observe", {"seconds": seconds}, timeout_s=seconds + 60)
    return _of_ceph(observation_from_json(seen), chosen, RATE, f"testbed {name}")


def _of_ceph(seen: Observation, chosen: UrsaParameters, unit: str, where: object) -> Instance:
    window, problem = add_interval(empty_window(), seen), None
    if window["seconds"]:
        loads = pg_loads(window, chosen)
        problem = build(seen, loads, osd_loads(window, chosen), (), chosen)
    if problem is None:
        raise UserError(
            "no PG can be moved",
            where=where,
            allowed="PGs that no upmap pins, in replicated pools, at their places on OSDs in use",
        )
    size = {pg.id: pg.bytes for pg in seen.pgs}
    return replace(
        problem.instance,
        size=np.array([size[pg] for pg in problem.pgs], np.float32),
        partition_names=problem.pgs,
        node_names=[f"osd.{osd}" for osd in problem.osds],
        load_unit=unit,
    )


def _of_dumps(folder: Path, chosen: UrsaParameters) -> Instance:
    dumps = {}
    for name in (*DUMPS, LATER):
        file = folder / f"{name}.json"
        if file.is_file():
            dumps[name] = parse(file.read_bytes())
        elif name in DUMPS:
            do = f"write it with `{DUMPS[name]} --format json > {file.name}`"
            raise UserError("there is no such file", where=file, do=do)
    try:
        seen = _observation(dumps)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"its files are no dumps of a Ceph ({type(error).__name__}: {error})",
            where=folder,
            do=f"write them with {', '.join(DUMPS.values())}, each with --format json",
        ) from error
    return _of_ceph(seen, chosen, RATE if LATER in dumps else "operations", folder)


def _observation(dumps: Mapping[str, Any]) -> Observation:
    """Return OSDs, PGs and their operations a second between two dumps; of one dump all operations
    since the PGs were made, as if in a second."""
    osd_map = parse_osd_map(dumps["osd_dump"], dumps["osd_tree"])
    stats = parse_pg_dump(dumps.get(LATER, dumps["pg_dump"]))
    reports = {pg: report_of(item) for pg, item in stats.items()}
    rates = {pg: OpRates(one.reads, one.writes) for pg, one in reports.items()}
    if LATER in dumps:
        stamps = (dumps[name]["pg_map"]["stamp"] for name in ("pg_dump", LATER))
        begin, end = map(datetime.fromisoformat, stamps)
        first = {pg: report_of(item) for pg, item in parse_pg_dump(dumps["pg_dump"]).items()}
        rates = pg_rates(first, reports, (end - begin).total_seconds())
    pools = {str(pool.id) for pool in osd_map.pools.values() if pool.replicated}
    pgs = [
        Pg(pg, one.up, one.acting, osd_map.pinned(pg), int(stats[pg]["stat_sum"]["num_bytes"]))
        for pg, one in reports.items()
        if pg.partition(".")[0] in pools
    ]
    return Observation(0, 1, osds=tuple(osd_map.osds.values()), pgs=pgs, activity=Activity(rates))


# ---- Tables ----


def _of_tables(path: Path) -> Instance:
    partitions = _table(path, "partition", "node_1", *LOADS)
    file = path.with_stem("nodes")
    nodes = _table(file, "node", "capacity")
    names: list[str] = nodes["node"].tolist()
    places: list[Any] = []
    while (column := f"node_{len(places) + 1}") in partitions:
        places.append(pd.Index(names).get_indexer(pd.Index(partitions[column])))
        for row in np.flatnonzero(places[-1] < 0)[:1]:
            name = str(partitions[column][row])
            raise UserError(
                f"{column} {name} is not in {file}", where=path, do=nearest(name, names)
            )
    arrays: dict[str, Any] = {
        "replica_node": np.column_stack(places).astype(np.int32),
        "fault_domain": _numbered(nodes.get("fault_domain", nodes["node"])),
        "capacity": _numbers(nodes["capacity"]),
    }
    arrays |= {name: _numbers(partitions[name]) for name in (*LOADS, "bytes") if name in partitions}
    if {"x", "y"} <= {*nodes}:
        arrays["node_xy"] = np.column_stack([_numbers(nodes["x"]), _numbers(nodes["y"])])
    else:
        rack = _numbered(nodes["rack"]) if "rack" in nodes else np.zeros(len(nodes), np.int32)
        cost = UrsaParameters.rack_cost, UrsaParameters.far_cost
        same = np.eye(rack.max(initial=0) + 1, dtype=bool)
        arrays |= {"rack": rack, "rack_distance": np.where(same, *cost).astype(np.float32)}
    made = instance_from(arrays, str(path))
    return replace(made, partition_names=partitions["partition"].tolist(), node_names=names)


def _table(path: Path, key: str, *needed: str) -> pd.DataFrame:
    """Return a table of texts. UserError: it cannot be read, lacks a needed column, or has a value
    of the column `key` twice."""
    try:
        csv = path.suffix == ".csv"
        found = pd.read_csv(path, dtype=str) if csv else pd.read_parquet(path).astype(str)
    except (OSError, ValueError) as error:  # pandas' and Arrow's errors are ValueErrors
        raise UserError(f"cannot be read ({' '.join(str(error).split())})", where=path) from error
    for name in (key, *needed):
        if name not in found:
            has = ", ".join(map(str, found))
            raise UserError(f"the column {name} is missing; it has {has}", where=path, do="add it")
    for name in found[key][found[key].duplicated()][:1]:
        raise UserError(f"{key} {name} is there twice", where=path, do="keep one of them")
    return found


def _numbers(column: pd.Series[str]) -> Float32:
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float32)


def _numbered(column: pd.Series[str]) -> Int32:
    return pd.factorize(column)[0].astype(np.int32)
