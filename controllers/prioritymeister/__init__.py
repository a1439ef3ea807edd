"""PriorityMeister's planner: from traces and SLOs to priorities and token buckets, pure functions.

Sections, figures and tables are those of Zhu et al., "PriorityMeister: Tail Latency QoS for Shared
Networked Storage", SoCC 2014. Units: seconds; work of a storage stage in seconds of the device, of
a network stage in bytes; rates in work per second (docs/prioritymeister.md).
"""
