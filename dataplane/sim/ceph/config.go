package ceph

import (
	"fmt"
	"math"
	"time"

	"hotbed/dataplane/service"
	"hotbed/dataplane/sim"
)

// Config is a modelled cluster: one OSD on each of OSDs nodes, one pool, and the model's constants.
// Units are bytes, bytes per second and seconds. docs/simulation.md describes the constants and
// their sources.
type Config struct {
	Seed uint64 `json:"seed"`

	OSDs    int `json:"osds"`
	Pool    int `json:"pool"`
	PGs     int `json:"pgs"`
	Size    int `json:"size"`
	MinSize int `json:"min_size"`
	// RackHosts puts more hosts than this into racks of this size; 0: never.
	RackHosts int `json:"rack_hosts"`
	// AddOrder is the order in which the OSDs' hosts were added to the CRUSH map. It determines
	// their ids and so the placement; empty: by number.
	AddOrder []int `json:"add_order"`

	// Racks is the rack of each OSD's node, from 0. Uplink is the rate (payload) in each direction
	// between a rack and the rest of the network. Empty and 0: a flat network.
	Racks  []int   `json:"racks"`
	Uplink float64 `json:"uplink_rate"`

	DiskSize    int64   `json:"disk_size"`
	Scratch     int64   `json:"scratch"` // first part of the disk: fio's files
	Positioning float64 `json:"positioning_s"`
	Bandwidth   float64 `json:"bandwidth"`
	QueueDepth  int     `json:"queue_depth"`
	MaxIO       int64   `json:"max_io"`
	// Reorder is the probability that a part of a large read does not continue at the previous
	// part's end, because the disk's server threads overtake each other.
	Reorder float64 `json:"reorder"`

	// Spread is the fraction of the store's space that its objects occupy.
	Spread float64 `json:"spread"`

	NodeRate   float64 `json:"node_rate"`   // link of an OSD's node, payload
	ClientRate float64 `json:"client_rate"` // link of a client's node, payload
	Delay      float64 `json:"delay_s"`     // one way
	Clients    int     `json:"clients"`     // client nodes

	Shards        int     `json:"shards"`          // osd_op_num_shards
	Threads       int     `json:"threads"`         // osd_op_num_threads_per_shard
	OpTime        float64 `json:"op_time_s"`       // an operation's time in an OSD outside the disk
	ByteTime      float64 `json:"byte_time_s"`     // additional time per byte
	ClientByte    float64 `json:"client_byte_s"`   // a client's time per byte, to verify reads
	ClientOp      float64 `json:"client_op_s"`     // an operation's time in client and network stack
	ClientBytes   int64   `json:"client_bytes"`    // maximum bytes in flight per client (objecter_inflight_op_bytes)
	StoreBytes    int64   `json:"store_bytes"`     // disk space of the store itself
	StatsEvery    float64 `json:"stats_s"`         // OSDs report their fill to the manager (mgr_stats_period)
	CommitBytes   int64   `json:"commit_bytes"`    // written to the key-value store per transaction
	CommitWrites  int     `json:"commit_writes"`   // one after the other
	DeferBytes    int64   `json:"defer_bytes"`     // smaller overwrites are in place
	Propose       float64 `json:"propose_s"`       // time from a monitor command to its epoch
	Peering       float64 `json:"peering_s"`       // messages of one peering
	PeeringCommit int     `json:"peering_commits"` // maximum consecutive transactions in a peering
	DownAfter     float64 `json:"down_after_s"`    // time from a crash until the monitors mark the OSD down
	OutAfter      float64 `json:"out_after_s"`     // time from down until out; 0: never

	MaxBackfills  int     `json:"max_backfills"`
	RecoverActive int     `json:"recovery_max_active"`
	RecoverySleep float64 `json:"recovery_sleep_s"`

	BalancerEvery     float64 `json:"balancer_every_s"`
	BalancerDeviation int     `json:"balancer_deviation"` // upmap_max_deviation
	BalancerMoves     int     `json:"balancer_moves"`     // upmap_max_optimizations

	FioJobs  int   `json:"fio_jobs"`
	FioDepth int   `json:"fio_depth"`
	FioBytes int64 `json:"fio_file_bytes"`
	FioBlock int64 `json:"fio_block"`

	// Detail is the maximum number of nodes with individual samples; with more nodes, only the
	// means over hot and over calm nodes are kept.
	Detail int `json:"detail"`
}

// check returns an error of one sentence for the first invalid value.
func (c *Config) check() error {
	numbers := []struct {
		name        string
		value       float64
		least, most float64
	}{
		{"osds", float64(c.OSDs), 1, 100_000},
		{"pgs", float64(c.PGs), 1, 1 << 20},
		{"size", float64(c.Size), 1, maxSize},
		{"min_size", float64(c.MinSize), 1, float64(c.Size)},
		{"rack_hosts", float64(c.RackHosts), 0, 1 << 20},
		{"disk_size", float64(c.DiskSize), 1 << 20, service.MaxSize},
		{"scratch", float64(c.Scratch), 0, float64(c.DiskSize - 1<<20)},
		{"queue_depth", float64(c.QueueDepth), 1, 1 << 16},
		{"max_io", float64(c.MaxIO), 512, 1 << 30},
		{"reorder", c.Reorder, 0, 1},
		{"spread", c.Spread, 0, 1},
		{"node_rate", c.NodeRate, 1, 1e15},
		{"client_rate", c.ClientRate, 1, 1e15},
		{"uplink_rate", c.Uplink, 0, 1e15},
		{"delay_s", c.Delay, 0, 60},
		{"clients", float64(c.Clients), 1, 1e6},
		{"shards", float64(c.Shards), 1, 1024},
		{"threads", float64(c.Threads), 1, 1024},
		{"op_time_s", c.OpTime, 0, 60},
		{"byte_time_s", c.ByteTime, 0, 1},
		{"client_byte_s", c.ClientByte, 0, 1},
		{"client_op_s", c.ClientOp, 0, 60},
		{"client_bytes", float64(c.ClientBytes), 1, 1 << 50},
		{"store_bytes", float64(c.StoreBytes), 0, float64(c.DiskSize)},
		{"stats_s", c.StatsEvery, 0, 3600},
		{"commit_bytes", float64(c.CommitBytes), 512, 1 << 24},
		{"commit_writes", float64(c.CommitWrites), 1, 100},
		{"defer_bytes", float64(c.DeferBytes), 0, 1 << 30},
		{"propose_s", c.Propose, 0, 600},
		{"peering_s", c.Peering, 0, 600},
		{"peering_commits", float64(c.PeeringCommit), 0, 100},
		{"down_after_s", c.DownAfter, 0, 1e6},
		{"out_after_s", c.OutAfter, 0, 1e9},
		{"max_backfills", float64(c.MaxBackfills), 1, 1000},
		{"recovery_max_active", float64(c.RecoverActive), 1, 1000},
		{"recovery_sleep_s", c.RecoverySleep, 0, 600},
		{"balancer_every_s", c.BalancerEvery, 0.1, 1e6},
		{"balancer_deviation", float64(c.BalancerDeviation), 1, 1e6},
		{"balancer_moves", float64(c.BalancerMoves), 1, 1e6},
		{"fio_jobs", float64(c.FioJobs), 1, 64},
		{"fio_depth", float64(c.FioDepth), 1, 1024},
		{"fio_block", float64(c.FioBlock), 512, 1 << 24},
		{"fio_file_bytes", float64(c.FioBytes), float64(c.FioBlock), float64(c.DiskSize)},
		{"detail", float64(c.Detail), 0, 1e6},
	}
	for _, n := range numbers {
		if !(n.value >= n.least && n.value <= n.most) { // also refuses NaN
			return fmt.Errorf("%s is %g, allowed is %g to %g", n.name, n.value, n.least, n.most)
		}
	}
	if c.Size > c.OSDs {
		return fmt.Errorf("the pool keeps %d replicas on %d nodes", c.Size, c.OSDs)
	}
	if need := int64(c.FioJobs) * c.FioBytes; need > c.DiskSize {
		return fmt.Errorf("fio's files take %d bytes of a disk of %d", need, c.DiskSize)
	}
	if err := c.checkOrder(); err != nil {
		return err
	}
	if err := c.checkRacks(); err != nil {
		return err
	}
	return c.disk().Model.Validate()
}

func (c *Config) checkOrder() error {
	if len(c.AddOrder) == 0 {
		return nil
	}
	seen := make([]bool, c.OSDs)
	for _, osd := range c.AddOrder {
		if osd < 0 || osd >= c.OSDs || seen[osd] {
			return fmt.Errorf("add_order names osd.%d twice or there is no such OSD", osd)
		}
		seen[osd] = true
	}
	if len(c.AddOrder) != c.OSDs {
		return fmt.Errorf("add_order names %d of %d OSDs", len(c.AddOrder), c.OSDs)
	}
	return nil
}

func (c *Config) checkRacks() error {
	if len(c.Racks) != 0 && len(c.Racks) != c.OSDs {
		return fmt.Errorf("racks names %d of %d OSDs' racks", len(c.Racks), c.OSDs)
	}
	for osd, rack := range c.Racks {
		if rack < 0 || rack >= c.OSDs {
			return fmt.Errorf("osd.%d is in rack %d, allowed is 0 to %d", osd, rack, c.OSDs-1)
		}
	}
	return nil
}

func (c *Config) disk() sim.DiskSpec {
	return sim.DiskSpec{
		Model: service.Model{
			PositioningMean: time.Duration(math.Round(c.Positioning * 1e9)),
			Bandwidth:       c.Bandwidth,
			Size:            c.DiskSize,
		},
		Depth:     c.QueueDepth, // of both directions: a multi-queue device without a scheduler
		WakeBatch: max(1, min(8, c.QueueDepth/8)),
		MaxIO:     c.MaxIO,
	}
}

// Capacity returns the reads per second that a disk serves to a sole hotspot.
func (c *Config) Capacity() float64 {
	// The root distance within a part p of the disk is sqrt(p) times that of the whole disk.
	part := math.Sqrt(float64(int64(c.FioJobs)*c.FioBytes) / float64(c.DiskSize))
	far := float64(service.SqrtFactor * service.MeanRootDistance * part)
	seek := float64(c.Positioning * (service.SettleShare + far))
	return 1 / (seek + float64(c.FioBlock)/c.Bandwidth)
}
