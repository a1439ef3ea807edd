"""Workloads: benchmarks, disturbances and traces."""
