"""ceph-ansible's stable-9.0 (Ceph 19, Squid) as a deployer."""
