package ceph

// leastUsed is mon_reweight_min_bytes_per_osd.
const leastUsed = 100 << 20

// keep adds bytes of objects to an OSD's store.
func (c *Cluster) keep(o *osd, bytes int64) {
	if in := c.statsInterval(o); in > o.toldIn {
		o.told, o.toldIn = o.stored, in
	}
	o.stored += bytes
}

// toldUsed returns the manager's knowledge of an OSD's used space, as in `ceph osd df`: objects and
// BlueStore's own space, as of the OSD's last report.
func (c *Cluster) toldUsed(o *osd) int64 {
	if c.cfg.StatsEvery > 0 && c.statsInterval(o) == o.toldIn {
		return o.told + c.cfg.StoreBytes
	}
	return o.stored + c.cfg.StoreBytes
}

// statsInterval returns the number of the current interval between an OSD's reports, from 1. OSDs
// report in turn.
func (c *Cluster) statsInterval(o *osd) int64 {
	if c.cfg.StatsEvery == 0 {
		return 0
	}
	turn := float64(o.id) / float64(len(c.osds))
	return 1 + int64(c.k.Now().Seconds()/c.cfg.StatsEvery+turn)
}
