"""cephadm as a deployer: current releases, in containers. Untested on a live cluster."""
