"""Basic MOS: whole machines by utilization (Algorithm 1)."""
