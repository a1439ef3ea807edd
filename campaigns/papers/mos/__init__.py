"""MOS and its rivals: microstores of object storage under COSBench's workloads (``system: mos``).

`live` runs cells on a testbed of real Swift; `simulated` computes them with COSPerf.
"""
