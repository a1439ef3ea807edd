package ceph

import (
	"slices"
	"strings"
)

// Values of rados_replica_read_policy.
const (
	policyPrimary  = "default"
	policyBalance  = "balance"
	policyLocalize = "localize"
)

var readPolicies = []string{policyPrimary, policyBalance, policyLocalize}

// place is a bucket of the CRUSH map by its type and name.
type place struct{ kind, name string }

// crushTypes lists the modelled types of buckets, the nearest first.
var crushTypes = []string{"host", "rack", "root"}

// locationOf parses a client's crush_location, such as "host=osd1 root=default".
func locationOf(text string) ([]place, bool) {
	var found []place
	for _, word := range strings.Fields(text) {
		kind, name, _ := strings.Cut(word, "=")
		if !slices.Contains(crushTypes, kind) || name == "" {
			return nil, false
		}
		found = append(found, place{kind, name})
	}
	return found, true
}

// reader returns the OSD that a client reads a PG from, or none. As in Ceph's Objecter, the policy
// balance draws one of the acting set, and localize takes the one with the nearest common ancestor
// in the CRUSH map, the primary before others that are as near. A PG without a primary has no
// reader.
func (b *bench) reader(c *Cluster, client int, pg int32) int32 {
	acting := c.members(pg)
	if len(acting) < 2 || b.policy == policyPrimary {
		return c.primary(pg)
	}
	if b.policy == policyBalance {
		return acting[b.replicas.IntN(int64(len(acting)))]
	}
	at := b.location
	if len(at) == 0 { // Ceph's default
		at = []place{{"root", "default"}}
		if client < len(c.cfg.ClientNames) {
			at = append(at, place{"host", c.cfg.ClientNames[client]})
		}
	}
	return slices.MinFunc(acting, func(x, y int32) int { return c.distance(x, at) - c.distance(y, at) })
}

// distance returns the number of the nearest type of bucket that contains both an OSD and a place.
func (c *Cluster) distance(osd int32, at []place) int {
	names := [...]string{nameAt(c.cfg.HostNames, osd), nameAt(c.cfg.RackNames, osd), "default"}
	for i, kind := range crushTypes {
		if names[i] != "" && slices.Contains(at, place{kind, names[i]}) {
			return i
		}
	}
	return len(crushTypes)
}

func nameAt(names []string, osd int32) string {
	if int(osd) < len(names) {
		return names[osd]
	}
	return ""
}
