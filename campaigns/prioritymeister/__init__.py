"""PriorityMeister's studies: topologies, their traces, and the plans made of them."""
