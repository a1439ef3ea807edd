"""Mistakes on the command line: each is one sentence that names it, and exit code 2."""

from __future__ import annotations

import shlex
import zipfile
from pathlib import Path

import pytest
import yaml

from hotbed.exit_codes import EXIT_USER
from tests.campaigns.tiny_kinds import URSA
from tests.hotbed.pm_commands import write_trace
from tests.hotbed.runner import hotbed
from tests.hotbed.ursa_cli import write

MISTAKES = {
    "bundle --artifacts HERE/artifacts": {
        "nonesuch": "nonesuch: no such campaign",
        "artifacts/dlr-quick": "artifacts/dlr-quick: is a path",
    },
    "verify": {
        "nowhere.zip": "nowhere.zip: there is no such file",
        "HERE/empty.zip": "has no manifest.json, so it is no bundle",
    },
    "rerun": {"nowhere.zip": "nowhere.zip: there is no such file"},
    "run dlr-quick --artifacts HERE/artifacts": {
        "--ground moon": "--ground: there is no ground 'moon'",
        "--model x.yaml": "a model belongs to the ground sim",
        "--ground sim --model x.yaml": "x.yaml: there is no such file",
        "--ground locl": "did you mean local?",
        "--figure 6aa": "did you mean 6a?",
        "--spec testbed/specs/drl.yaml": "did you mean testbed/specs/dlr.yaml?",
    },
    "run dlr-quik": {"": "there is no campaign 'dlr-quik'; allowed: dlr-filestore, "},
    "run campaigns/files/dlr-quik.yaml": {"": "did you mean campaigns/files/dlr-quick.yaml?"},
    "up dlr.yml": {"": "did you mean testbed/specs/dlr.yaml?"},
    "report twochoise --artifacts HERE/artifacts": {"": "did you mean twochoice?"},
    "reference check usra": {"": "did you mean ursa?"},
    "control start drl": {"": "did you mean dlr?"},
    "bench --only repot": {"": "did you mean report?"},
    "run HERE/claim.yaml --dry-run": {"": "precision: claim: ursa has no claim 'ursa-al-removed'"},
    "validate --artifacts HERE/artifacts": {"": "no finished run of ground local"},
    "compare --artifacts HERE/artifacts": {
        "--controllers nobody": "there is no controller 'nobody'",
        "-p hot_nodes": "--parameter 'hot_nodes': write NAME=VALUE",
        "--workers 0": "--workers: 0 is not allowed; allowed: 1 to 1024",
        "--scheduler here": "no address of a Dask scheduler",
        "--workers 2 --scheduler tcp://x:1": "give one of them",
        "--controllers dlr --ground local --testbed x --workers 2 --dry-run": "--workers and",
    },
    "scale --artifacts HERE/artifacts --dry-run": {
        "--osds many": "--osds: 'many' is no whole number",
        "--hot 5%": "--hot: '5%' is no number",
        "--hot 5": "hot_share: 5.0 is not allowed; allowed: a number above 0 and at most 1",
        "--move ,": "--move is empty",
        "--workers 2 --scheduler tcp://x:1": "give one of them",
    },
    "ursa plan none.npz": {  # before the file is read
        "--method best": "allowed: alp-fast, ",
        "--time-limit 0": "time-limit",
        "--max-move-cost -1": "max-move-cost",
        "--seed -1": "seed",
        "--swap-success 2": "probability",
    },
    "ursa plan HERE/small.npz": {
        "--spread 1": "the instance has 1 levels",
        "--rounds 3": "without a budget one round does it all",
        "--max-moves -1": "max-moves: -1",
        "--max-moves 1 --rounds 0": "rounds: 0",
        "--budget 5": "needs an array bytes",
        "--max-moves 1 --method joint": "method joint is for",
    },
    "ursa rounds HERE/small.npz": {
        "--random 2": "random: 2.0",
        "--random 0.1 --rounds -1": "rounds: -1",
        "HERE/small.npz --random 0.1": "not both",
        "--time-limit 0": "time-limit",
        "HERE/small.npz": "lacks partition",
    },
    "ursa generate --partitions 10 --out HERE/a.npz": {
        "--nodes ten": "nodes: 'ten'",
        "--nodes 1.5": "nodes: '1.5'",
        "--nodes 2": "do not fit",
        "--nodes 0": "nodes: 0",
        "--nodes 10 --kind s9": "allowed: s1",
        "--nodes 10 --tail 0": "tail",
        "--nodes 10 --load-max 1": "load_max",
        "--nodes 10 --domain rack": "no racks",
        "--nodes 10 --racks 11": "11 racks",
        "--nodes 10 --seed -1": "seed",
    },
    "pm trace generate": {
        "fractal HERE/x.csv": "'fractal' is not allowed; allowed: poisson",
        "poisson HERE/x.csv --rate 0": "must be above 0",
        "poisson HERE/x.csv --seed -1": "--seed: -1 is not allowed",
        "poisson HERE/x.csv --size 7": "a multiple of 512",
        "poisson HERE/x.csv --read-share 2": "0 to 1",
        "poisson HERE/x.csv --rate 1e-9 --count 50": "4e",
    },
    "pm curve HERE/t.csv --stage": {
        "disk": "allowed: network-in",
        "storage": "give --profile",
        "network-in --rates 1,x": "--rates: 'x' is not allowed",
        "network-in --rates=-1": "--rates: '-1' is not allowed",
        "network-in --rates ''": "--rates: '' is not allowed",
    },
    "mos profile": {
        "nowhere": "no such folder of runs",
        "HERE/artifacts": "no finished run",
    },
    "cosbench xml": {
        "E": "no workload of Table 1; allowed: A, B, C, D",
        "A --scale 0": "--scale 0",
        "A --runtime 1.5s": "COSBench counts whole seconds",
        "A --storage tape": "--storage tape; allowed: none, mock, swift",
        "A --auth-url http://192.0.2.1/": "--auth-url has no place in type none",
        "A --auth swauth --auth-url here": "write an address such as",
        "A --stages main,warmup": "stages warmup",
    },
    "cosbench check": {
        "": "give either",
        "--release HERE": "holds no release",
        "HERE/none.xml": "cannot be read: No such file",
    },
    "cosbench run HERE/w.xml": {
        "--archive x": "give --controller too",
        "--tenant web": "give --node or --testbed too",
        "--controller h": "give its --archive folder too",
        "--controller h --archive x --seed 1": "embedded driver's",
        "--controller h --archive x --node n": "has drivers of its own",
        "--controller h --archive x --testbed t": "--archive NODE:FOLDER",
        "--controller h --archive none --login x": "cannot be read",
        "--controller h --archive none": "is no folder",
        "--open-loop 5:bursty": "--open-loop 5:bursty",
        "--open-loop :constant": "--open-loop :constant",
        "--open-loop ''": "write operations a second",
    },
}
"""Facts of the sentence by the rest of a command line, by its beginning."""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bundle without a manifest, a trace, an instance, a workload, and a
    campaign with a mistyped claim."""
    folder = tmp_path_factory.mktemp("here")
    with zipfile.ZipFile(folder / "empty.zip", "w") as opened:
        opened.writestr("x", b"x")
    (folder / "artifacts").mkdir()
    write_trace(folder / "t.csv", n=9)
    write(folder / "small.npz")
    (folder / "w.xml").write_text("<workload name='w'/>")
    asks = {"claim": "ursa-al-removed", "half_width": 0.1, "max_blocks": 9}
    grid = {**URSA["grids"][0], "repetitions": 5, "precision": asks}
    (folder / "claim.yaml").write_text(yaml.safe_dump({**URSA, "grids": [grid]}))
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [(f"{verb} {rest}", said) for verb, all_ in MISTAKES.items() for rest, said in all_.items()],
)
def test_a_mistake_is_one_sentence(words, said, here, capsys):
    assert hotbed(*shlex.split(words.replace("HERE", str(here)))) == EXIT_USER
    captured = capsys.readouterr()
    assert captured.out == ""
    (sentence,) = (one for one in captured.err.splitlines() if one.startswith("hotbed: "))
    assert said in sentence
