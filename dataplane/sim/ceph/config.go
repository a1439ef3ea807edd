package ceph

import (
	"fmt"
	"math"
	"time"

	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/service"
	"hotbed/dataplane/sim"
)

// Config is a modelled cluster: one OSD on each of OSDs nodes, one pool, and the model's constants.
// Units are bytes, bytes per second and seconds. docs/simulation.md describes the constants and
// their sources.
type Config struct {
	Seed uint64 `json:"seed"`

	OSDs    int `json:"osds" limits:"1 1e5"`
	Pool    int `json:"pool"`
	PGs     int `json:"pgs" limits:"1 1048576"`
	Size    int `json:"size" limits:"1 10"`
	MinSize int `json:"min_size"`
	// RackHosts puts more hosts than this into racks of this size; 0: never.
	RackHosts int `json:"rack_hosts" limits:"0 1048576"`
	// AddOrder is the order in which the OSDs' hosts were added to the CRUSH map. It determines
	// their ids and so the placement; empty: by number.
	AddOrder []int `json:"add_order"`

	// Racks is the rack of each OSD's node, from 0. Uplink is the rate (payload) in each direction
	// between a rack and the rest of the network. Empty and 0: a flat network.
	Racks  []int   `json:"racks"`
	Uplink float64 `json:"uplink_rate" limits:"0 1e15"`

	DiskSize int64 `json:"disk_size" limits:"1048576 1125899906842624"`
	Scratch  int64 `json:"scratch"` // first part of the disk: fio's files
	// FileSystem is the size of the file system that the objects share with fio's files (FileStore).
	// 0: the objects have the rest of the disk (BlueStore).
	FileSystem  int64   `json:"file_system"`
	Positioning float64 `json:"positioning_s"`
	Bandwidth   float64 `json:"bandwidth"`
	QueueDepth  int     `json:"queue_depth" limits:"1 65536"`
	MaxIO       int64   `json:"max_io" limits:"512 1073741824"`
	// Reorder is the probability that a part of a large read does not continue at the previous
	// part's end, because the disk's server threads overtake each other.
	Reorder float64 `json:"reorder" limits:"0 1"`

	// Spread is the fraction of the store's space that its objects occupy.
	Spread float64 `json:"spread" limits:"0 1"`

	NodeRate   float64 `json:"node_rate" limits:"1 1e15"`   // link of an OSD's node, payload
	ClientRate float64 `json:"client_rate" limits:"1 1e15"` // link of a client's node, payload
	Delay      float64 `json:"delay_s" limits:"0 60"`       // one way
	Clients    int     `json:"clients" limits:"1 1e6"`      // client nodes

	Shards        int     `json:"shards" limits:"1 1024"`                   // osd_op_num_shards
	Threads       int     `json:"threads" limits:"1 1024"`                  // osd_op_num_threads_per_shard
	OpTime        float64 `json:"op_time_s" limits:"0 60"`                  // an operation's time in an OSD outside the disk
	ByteTime      float64 `json:"byte_time_s" limits:"0 1"`                 // additional time per byte
	ClientByte    float64 `json:"client_byte_s" limits:"0 1"`               // a client's time per byte, to verify reads
	ClientOp      float64 `json:"client_op_s" limits:"0 60"`                // an operation's time in client and network stack
	ClientBytes   int64   `json:"client_bytes" limits:"1 1125899906842624"` // maximum bytes in flight per client (objecter_inflight_op_bytes)
	StoreBytes    int64   `json:"store_bytes"`                              // disk space of the store itself
	StatsEvery    float64 `json:"stats_s" limits:"0 3600"`                  // OSDs report their fill to the manager (mgr_stats_period)
	CommitBytes   int64   `json:"commit_bytes" limits:"512 16777216"`       // written to the key-value store per transaction
	CommitWrites  int     `json:"commit_writes" limits:"1 100"`             // one after the other
	DeferBytes    int64   `json:"defer_bytes" limits:"0 1073741824"`        // smaller overwrites are in place
	Propose       float64 `json:"propose_s" limits:"0 600"`                 // time from a monitor command to its epoch
	Peering       float64 `json:"peering_s" limits:"0 600"`                 // messages of one peering
	PeeringCommit int     `json:"peering_commits" limits:"0 100"`           // maximum consecutive transactions in a peering
	DownAfter     float64 `json:"down_after_s" limits:"0 1e6"`              // time from a crash until the monitors mark the OSD down
	OutAfter      float64 `json:"out_after_s" limits:"0 1e9"`               // time from down until out; 0: never

	// OpQueue is osd_op_queue: wpq (also if empty) or mclock_scheduler, whose classes get shares of
	// MClockBandwidth, and whose operations cost at least MClockBandwidth/MClockIOPS bytes.
	OpQueue         string  `json:"op_queue"`
	MClockProfile   string  `json:"mclock_profile"`                   // osd_mclock_profile
	MClockBandwidth float64 `json:"mclock_bandwidth" limits:"0 1e15"` // osd_mclock_max_sequential_bandwidth_hdd
	MClockIOPS      float64 `json:"mclock_iops" limits:"0 1e9"`       // osd_mclock_max_capacity_iops_hdd

	MaxBackfills  int     `json:"max_backfills" limits:"1 1000"`
	RecoverActive int     `json:"recovery_max_active" limits:"1 1000"`
	RecoverySleep float64 `json:"recovery_sleep_s" limits:"0 600"`

	BalancerEvery     float64 `json:"balancer_every_s" limits:"0.1 1e6"`
	BalancerDeviation int     `json:"balancer_deviation" limits:"1 1e6"` // upmap_max_deviation
	BalancerMoves     int     `json:"balancer_moves" limits:"1 1e6"`     // upmap_max_optimizations

	FioJobs  int   `json:"fio_jobs" limits:"1 64"`
	FioDepth int   `json:"fio_depth" limits:"1 1024"`
	FioBytes int64 `json:"fio_file_bytes"`
	FioBlock int64 `json:"fio_block" limits:"512 16777216"`

	// Names of the nodes of OSDs and clients, and of the OSDs' CRUSH racks (empty, or "" without a
	// rack), for reads near a client.
	HostNames   []string `json:"host_names"`
	RackNames   []string `json:"rack_names"`
	ClientNames []string `json:"client_names"`

	// Detail is the maximum number of nodes with individual samples; with more nodes, only the
	// means over hot and over calm nodes are kept.
	Detail int `json:"detail" limits:"0 1e6"`
}

// check returns an error of one sentence for the first invalid value.
func (c *Config) check() error {
	if err := limits.Check(*c); err != nil {
		return err
	}
	for _, n := range []struct {
		name               string
		value, least, most int64
	}{
		{"min_size", int64(c.MinSize), 1, int64(c.Size)},
		{"scratch", c.Scratch, 0, c.DiskSize - 1<<20},
		{"file_system", c.FileSystem, 0, c.DiskSize},
		{"store_bytes", c.StoreBytes, 0, c.DiskSize},
		{"fio_file_bytes", c.FioBytes, c.FioBlock, c.DiskSize},
	} {
		if err := limits.Within(n.name, float64(n.value), float64(n.least), float64(n.most)); err != nil {
			return err
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
	if err := c.checkQueue(); err != nil {
		return err
	}
	return c.disk().Model.Validate()
}

// storeSize returns the space that an OSD reports as its own.
func (c *Config) storeSize() int64 {
	if c.FileSystem > 0 {
		return c.FileSystem
	}
	return c.DiskSize - c.Scratch
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

func (c *Config) checkQueue() error {
	if c.OpQueue == "" || c.OpQueue == "wpq" {
		return nil
	}
	if _, known := mclockProfiles[c.MClockProfile]; c.OpQueue != "mclock_scheduler" || !known {
		return fmt.Errorf("op_queue %q with mclock_profile %q is not known", c.OpQueue, c.MClockProfile)
	}
	if err := limits.Within("mclock_bandwidth", c.MClockBandwidth, 1, 1e15); err != nil {
		return err
	}
	return limits.Within("mclock_iops", c.MClockIOPS, 1, 1e9)
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
