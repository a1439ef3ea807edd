"""PriorityMeister's figures and claims, from runs on any ground."""
