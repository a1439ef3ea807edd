"""The policy that knows the hot nodes and may move replicas."""
