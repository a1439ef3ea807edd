"""What `hotbed mos profile` does: measured runs become the constants of COSPerf and the optimiser's
cospurf, each of runs of its own, with the error of what they predict."""
