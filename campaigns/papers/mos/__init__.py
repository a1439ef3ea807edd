"""MOS and its rivals: microstores of object storage under COSBench's workloads (``system: mos``).

`kind` declares the campaigns. `cell` runs a cell on a testbed of real Swift (`swift` divides it,
`drives` loads it, `measure` computes the results); `simulated` computes a cell with COSPerf.
`experiments` has the paper's loads and divisions, `profile` models from measured runs.

Six files lead from YAML to verdict: ``campaigns/files/mos-local.yaml``, `kind`, `cell`, `measure`,
and ``analysis/papers/mos/`` with its runs and claims. Four do for a simulated cell:
``campaigns/files/mos-sim.yaml``, `kind`, `simulated` and ``analysis/papers/mos/simulated.py``.
"""
