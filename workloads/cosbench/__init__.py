"""COSBench workloads (Zheng et al., CLOUD 2012): written as XML, run, and read back.

`workload` describes Table 1 of the MOS paper and writes COSBench's XML; `driver` runs it with
`cosdrive`, the driver of the data plane, `real` with a real COSBench through its controller;
`archive` reads the results of both. `cosdrive check` interprets an XML.
"""
