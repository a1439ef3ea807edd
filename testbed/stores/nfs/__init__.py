"""The NFS store: ganesha behind the proxy, and the network between it and its clients."""
