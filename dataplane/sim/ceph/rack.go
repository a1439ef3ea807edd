package ceph

import "time"

// core is the rack of what is in none: clients.
const core int32 = -1

// uplink is the way between a rack and the rest of the network, each direction a link of its own.
type uplink struct{ out, in ingress }

// rackOf is the rack of an OSD's node, `core` where the network is flat.
func (c *Cluster) rackOf(osd int32) int32 {
	if len(c.cfg.Racks) == 0 {
		return core
	}
	return int32(c.cfg.Racks[osd])
}

// cross is when a message that has just left its sender has passed the narrow ways between two racks,
// and the rate at which it comes out of them.
func (c *Cluster) cross(now time.Duration, bytes int64, from float64, source, target int32) (
	time.Duration, float64,
) {
	if source == target || c.cfg.Uplink == 0 {
		return now, from
	}
	if source != core {
		now, from = c.uplinks[source].out.end(now, bytes, from, c.cfg.Uplink), c.cfg.Uplink
	}
	if target != core {
		now, from = c.uplinks[target].in.end(now, bytes, from, c.cfg.Uplink), c.cfg.Uplink
	}
	return now, from
}
