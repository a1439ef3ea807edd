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
# In an hour, write your own policy, compare it with the others on a simulated Ceph, and read the
# results. No testbed, no root. This notebook calls the same functions as `hotbed new controller`
# and `hotbed compare`. Every cell can be repeated; existing runs are kept. Relative paths start at
# Hotbed's folder.

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
# its placement group's primary OSD, so the slowest nodes delay all clients. Once per interval a
# controller receives an **observation** and returns **actions**. Here is one observation, written
# by hand: four OSDs, the first two on busy nodes. `pressure` is the percentage of time in which a
# process on the node waited for its disk.

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
# The paper's controller, DLR, lowers the *primary affinity* of busy OSDs: the probability that an
# OSD serves the reads of its placement groups.

# %%
from controllers.registry import create, find

dlr = create(find("dlr"), {}, seed=1)
state, actions = dlr.decide(dlr.initial(), observation)
actions

# %% [markdown]
# ## 2. Your controller (15 minutes)
#
# A controller is a folder with a `policy.py`. This cell creates a working one, with a test next to
# the folder. It never changes an existing folder.

# %%
from campaigns.engine.campaign_file import ROOT
from campaigns.new_controller import new_controller

folder = ROOT / controllers_dir
policy_file = folder / name.replace("-", "_") / "policy.py"
if not policy_file.exists():
    new_controller(name, folder)
print(policy_file, policy_file.read_text(), sep="\n\n")

# %% [markdown]
# Edit and save the file, then continue here. `decide` must be *pure*: no clock, no files, no random
# numbers. Its only inputs are the observation and the state that it returned before.

# %%
mine = create(find(name, [folder]), {}, seed=1)
mine.decide(mine.initial(), observation)

# %% [markdown]
# ## 3. The plan of a comparison (5 minutes)
#
# Every *block* runs every controller once, in random order, with the same hot nodes. Controllers
# are compared within blocks. The first line states the smallest effect that this number of blocks
# can resolve. A smaller difference is *inconclusive*, which does not mean equal.

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
# The same as `hotbed compare --controllers my-controller,dlr --controllers-dir my-controllers`. You
# can stop it at any time; the next call resumes. After a change of your policy, only its runs are
# repeated.

# %%
made = compare(ask)
made

# %% [markdown]
# ## 5. The figure (10 minutes)
#
# Each dot is the throughput relative to default Ceph, each bar its 95 % interval over blocks. A
# filled dot has an interval without zero: a difference is shown. *Place 1–2* means that the blocks
# cannot separate the first two.

# %%
from IPython.display import Image

from analysis.comparison.build import build

ranking = build(made.folder, made.comparison)
Image(filename=str(ranking.figure))

# %% [markdown]
# The same results as a table; *no clear difference from* lists the ties:

# %%
ranking

# %% [markdown]
# The same results as claims with verdicts. They were declared before the run, each that the
# controller is better; *not reproduced* means that it is worse.

# %%
import pandas as pd

columns = ["statement", "measured", "ci95", "n", "ground", "verdict", "note"]
pd.DataFrame([claim.model_dump() for claim in ranking.claims])[columns]

# %% [markdown]
# ## 6. Why? (10 minutes)
#
# Every run keeps a journal of each step's observation, decision and actions. `replay` recomputes
# every decision and reports the first difference, which means that your policy is not pure.

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
# Throughput of that run per second, and of default Ceph in the same block:

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
# - Change `busy` or `affinity` in your `policy.py` and continue from there: only your runs are
#   repeated.
# - With `scenario = "interference"` the hot nodes move: does your policy follow quickly enough?
#   Does it restore the affinities?
# - `others = ["all"]` adds every built-in controller. The oracle, which knows the hot nodes, shows
#   the largest possible gain.
# - Test what went wrong in `test_my_controller.py`, and run the test before the next comparison.
# - On a real Ceph: `ground = "local"` after `hotbed up` and `hotbed deploy`, or `hotbed compare
#   --ground local`. A block takes minutes there. The simulation is a model; the docs state its
#   error.
