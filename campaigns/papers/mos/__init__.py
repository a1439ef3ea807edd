"""MOS and its rivals: microstores of object storage under COSBench's workloads (``system: mos``).

`kind` declares the campaigns. `cell` runs a cell on a testbed of real Swift (`swift` divides it,
`drives` loads it, `measure` computes the results); `simulated` computes a cell with COSPerf.
`profile` has models from measured runs. docs/architecture.md leads from a cell's YAML to its
verdict.
"""
