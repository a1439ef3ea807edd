"""Kinds of campaigns without a Ceph testbed: a planner, a simulator or replayers make the cells.

A paper declares a `Kind` (`kind`) and is listed in `registry`. `hotbed run` then works the same for
every kind (`session`). See docs/campaigns.md, "A campaign of another kind"."""
