"""MOS and its rivals: microstores of object storage under COSBench's workloads (``system: mos``).

`kind` declares the campaigns. `cell` runs a cell on a testbed of real Swift (`swift` divides it,
`drives` loads it, `measure` computes the results); `simulated` computes a cell with COSPerf.
`loads` and `division` are the paper's experiments, `profile` models from measured runs.
"""
