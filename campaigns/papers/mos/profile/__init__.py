"""`hotbed mos profile`: measured runs become constants of COSPerf and the optimiser's cospurf. Each
uses its own runs, and has the error of its predictions."""
