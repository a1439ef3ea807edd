"""COSPerf (MOS, section 8.2): microstores on a pool of unequal machines, modelled analytically on
virtual time. The real control loop and the real policies drive it, like any simulated store. No
result is a measurement."""
