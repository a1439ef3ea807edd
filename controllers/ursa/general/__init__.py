"""Plans for loads of several dimensions, nested fault domains, and groups that move together.

The phases are those of `plan.plan`; loads are vectors here, a fault domain is looked for at every
level, and a group of partitions is one unit. What the paper's model covers is planned for by the
other modules, which are faster.
"""
