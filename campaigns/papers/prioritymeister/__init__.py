"""PriorityMeister's studies: topologies, their traces, and their plans."""
