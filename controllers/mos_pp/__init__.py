"""MOS++: shares by SLA and utilization (Algorithm 2), to the letter."""
