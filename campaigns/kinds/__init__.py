"""Campaigns whose cells are made by something else than a Ceph testbed: a planner, a simulator,
replayers. A paper declares a `Kind` (`kind`) and is named in `registry`; what `hotbed run` then
does is the same for all of them (`session`). See docs/campaigns.md, "A campaign of another kind".
"""
