package ceph

import "time"

// core is the rack number of everything outside racks: clients.
const core int32 = -1

// uplink connects a rack with the rest of the network, with a link for each direction.
type uplink struct{ out, in ingress }

// rackOf returns the rack of an OSD's node, `core` in a flat network.
func (c *Cluster) rackOf(osd int32) int32 {
	if len(c.cfg.Racks) == 0 {
		return core
	}
	return int32(c.cfg.Racks[osd])
}

// cross returns the time at which a message that has just left its sender has passed the uplinks
// between two racks, and the rate at which it leaves them.
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
