"""The NFS store: ganesha behind the proxy, and the network between the proxy and its clients."""
