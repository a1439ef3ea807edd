# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your controller against all others
#
# In an hour: write a policy of your own, let it meet the others on a simulated Ceph, and read what
# comes out. No testbed, no root. What this notebook calls is what `hotbed new controller` and
# `hotbed compare` call; everything can be run again, and runs that are there are not made twice.
# Relative paths begin at Hotbed's folder.

# %% tags=["parameters"]
name = "my-controller"  # type: str
controllers_dir = "my-controllers"  # type: str
others = ["dlr"]  # type: list
op = "rand"  # type: str
scenario = "heterogeneity"  # type: str
ground = "sim"  # type: str
blocks = 3  # type: int
duration_s = 180.0  # type: float
time_scale = 0.16666666666666666  # type: float
artifacts = "artifacts"  # type: str

# %% [markdown]
# ## 1. What a controller sees and does (10 minutes)
#
# Half of the OSD nodes are *hot*: other jobs read from their disks. A read waits in the queue of
# its placement group's primary OSD, so the slowest nodes hold everybody up. Once an interval a
# controller gets an **observation** and answers with **actions**. This is one observation, made by
# hand: four OSDs, the first two on busy nodes. `pressure` is the share of time, in percent, in
# which something on the node waited for its disk.

# %%
from testbed.stores.contract import Observation, Osd

observation = Observation(
    t_s=20.0,
    interval_s=20.0,
    pressure={0: 95.0, 1: 88.0, 2: 12.0, 3: 9.0},
    osds=tuple(Osd(number, f"node{number}") for number in range(4)),
)
observation

# %% [markdown]
# The paper's controller, DLR, lowers the *primary affinity* of the busy ones: the chance that an
# OSD serves the reads of the placement groups it holds.

# %%
from controllers.registry import create, find

dlr = create(find("dlr"), {}, seed=1)
state, actions = dlr.decide(dlr.initial(), observation)
actions

# %% [markdown]
# ## 2. Yours (15 minutes)
#
# A controller is a folder with a `policy.py`. This cell makes one that works, with a test of it
# next to the folder. It leaves a folder that exists as it is: the file is yours.

# %%
from campaigns.engine.campaign_file import ROOT
from campaigns.new_controller import new_controller

folder = ROOT / controllers_dir
policy_file = folder / name.replace("-", "_") / "policy.py"
if not policy_file.exists():
    new_controller(name, folder)
print(policy_file, policy_file.read_text(), sep="\n\n")

# %% [markdown]
# Open the file in an editor, change it, save it, and run on from here. `decide` must be *pure*: no
# clock, no files, no random numbers; all it knows is the observation and the state it returned
# before.

# %%
mine = create(find(name, [folder]), {}, seed=1)
mine.decide(mine.initial(), observation)

# %% [markdown]
# ## 3. What a comparison will run (5 minutes)
#
# Every *block* holds every controller once, in random order, with the same hot nodes: they are
# compared within blocks. The first line tells which effect that many blocks can resolve. (What
# differs less is not shown to be equal: it is *inconclusive*.)

# %%
from campaigns.comparison import Ask, compare, dry_run

ask = Ask(
    controllers=(name, *others),
    ground=ground,
    scenarios=(scenario,),
    ops=(op,),
    blocks=blocks,
    parameters={"duration_s": duration_s},
    time_scale=time_scale,
    artifacts=ROOT / artifacts,
    controllers_dir=folder,
)
planned = dry_run(ask)
print(*planned.power.values())
planned

# %% [markdown]
# ## 4. Run it (5 minutes)
#
# The same as `hotbed compare --controllers my-controller,dlr --controllers-dir my-controllers`.
# Stop it at any time: the next call goes on. After a change of your policy only its own runs are
# made anew.

# %%
made = compare(ask)
made

# %% [markdown]
# ## 5. The figure (10 minutes)
#
# Each dot is the throughput against that of default Ceph, each bar its 95 % interval over blocks. A
# filled dot: the interval leaves zero out, so a difference is shown. *Place 1–2* means that the
# blocks cannot tell who of two is the first.

# %%
from IPython.display import Image

from analysis.comparison.build import build

ranking = build(made.folder, made.comparison)
Image(filename=str(ranking.figure))

# %% [markdown]
# The same as a table; *no clear difference from* names the ties:

# %%
ranking

# %% [markdown]
# And as claims, each with its verdict. They were declared before the run, all in one direction:
# that the controller does better. *not reproduced* hence means that it does worse.

# %%
import pandas as pd

columns = ["statement", "measured", "ci95", "n", "ground", "verdict", "note"]
pd.DataFrame([claim.model_dump() for claim in ranking.claims])[columns]

# %% [markdown]
# ## 6. Why? (10 minutes)
#
# Every run keeps a journal: what was sensed, decided and done in each step. `replay` recomputes
# every decision and finds the first difference, if your policy is not as pure as it should be.

# %%
from controllers.journal import read_journal
from controllers.replay import replay

run_folder = made.runs_of(name)[0]
journal = read_journal(run_folder / "journal.jsonl")
print(replay(journal, [folder]).sentence())
pd.DataFrame(
    {
        "t_s": step["t_s"],
        "highest pressure": max(step["observation"]["pressure"].values(), default=None),
        "actions": ", ".join(f"osd.{a['osd']} → {a['value']:g}" for a in step["actions"]),
    }
    for step in journal.steps
    if step["observation"]
)

# %% [markdown]
# Throughput of that run, second by second, next to one of default Ceph in the same block:

# %%
import matplotlib.pyplot as plt

figure, axis = plt.subplots(figsize=(8, 3), layout="constrained")
for controller in (made.comparison.baseline, name):
    samples = pd.read_parquet(made.runs_of(controller)[0] / "samples.parquet")
    client = samples[(samples.node == "client") & (samples.metric == "throughput_mb_s")]
    axis.plot(client.t_s, client.value, label=controller)
axis.set(xlabel="time since the workload's start, s", ylabel="throughput, MB/s")
axis.legend()

# %% [markdown]
# ## 7. Your turn (the rest of the hour)
#
# - Change `busy`, or `affinity`, in your `policy.py` and run on from there: only your runs are made
#   anew.
# - The hot nodes move with `scenario = "interference"`: does your policy follow quickly enough?
#   Does it give the reads back?
# - `others = ["all"]` meets every controller there is; the oracle, which knows the hot nodes, shows
#   how much there was to be had.
# - Write `test_my_controller.py` for what went wrong, and repeat it before the next comparison.
# - On a real Ceph of your own: `ground = "local"` after `hotbed up` and `hotbed deploy`, or
#   `hotbed compare --ground local`. It takes minutes a block there; what is simulated is a model,
#   and its error is stated in the docs.
