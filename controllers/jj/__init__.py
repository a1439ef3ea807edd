"""TheJJ/ceph-balancer, run once an interval."""
