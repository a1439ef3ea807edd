package ceph

import (
	"math"
	"time"

	"hotbed/dataplane/sim"
)

// Columns lists a sample's columns, per node and its OSD; docs/simulation.md defines the units.
var Columns = []string{
	"pressure", "disk_read_mb_s", "disk_write_mb_s", "disk_util", "disk_queue", "net_rx_mb_s",
	"net_tx_mb_s", "hot", "osd_pressure", "op_r_latency_s", "primary_affinity", "reweight",
	"primaries",
}

// recorder samples every node once per second, like the recorder on a testbed's admin node. With
// more than Config.Detail nodes it keeps only the means over hot and calm nodes.
type recorder struct {
	on     bool
	times  []float64 // of the samples, seconds of virtual time
	rows   []float64 // for each sample all columns of each node, or of the hot and the calm nodes' means
	client []float64 // for each sample the OSDs' service: MB/s and operations per second, reads and writes
	before []counters
	at     time.Duration
	from   time.Duration // start of a benchmark's own time
}

// counters holds a node's counters at a point in time.
type counters struct {
	disk          sim.DiskStats
	osdStalled    time.Duration
	rx, tx        int64
	reads, writes int64
	readB, writeB int64
	readTime      time.Duration
}

func (c *Cluster) countersOf(o *osd) counters {
	return counters{
		disk: o.disk.Stats(c.k), osdStalled: o.stalled.Some(c.k.Now()),
		rx: o.netIn, tx: o.out.Sent(),
		reads: o.reads, writes: o.writes, readB: o.readBytes, writeB: o.writeBytes,
		readTime: o.readTime,
	}
}

// Record begins to take samples, the first after one second.
func (c *Cluster) Record() {
	r := &c.record
	r.on = true
	r.mark(c)
	c.k.After(time.Second, sim.Func(c.onSample), uint64(c.k.Now()))
}

func (r *recorder) mark(c *Cluster) {
	r.at = c.k.Now()
	r.before = r.before[:0]
	for _, o := range c.osds {
		r.before = append(r.before, c.countersOf(o))
	}
}

func (c *Cluster) onSample(k *sim.Kernel, arg uint64) {
	r := &c.record
	if !r.on {
		return
	}
	r.sample(c)
	k.After(time.Second, sim.Func(c.onSample), arg)
}

func (r *recorder) sample(c *Cluster) {
	seconds := (c.k.Now() - r.at).Seconds()
	grouped := len(c.osds) > c.cfg.Detail
	width := len(Columns)
	nodes := len(c.osds)
	if grouped {
		nodes = 2 // hot and calm nodes
	}
	row := make([]float64, nodes*width)
	count := make([]float64, nodes*width)
	var client [4]float64
	for i, o := range c.osds {
		now := c.countersOf(o)
		values := c.nodeSample(o, r.before[i], now, seconds)
		at := i
		if grouped {
			at = 1
			if o.fio.on {
				at = 0
			}
		}
		for j, v := range values {
			if !math.IsNaN(v) {
				row[at*width+j] += v
				count[at*width+j]++
			}
		}
		client[0] += float64(now.readB-r.before[i].readB) / seconds / 1e6
		client[1] += float64(now.writeB-r.before[i].writeB) / seconds / 1e6
		client[2] += float64(now.reads-r.before[i].reads) / seconds
		client[3] += float64(now.writes-r.before[i].writes) / seconds
		r.before[i] = now
	}
	for j := range row {
		if count[j] == 0 {
			row[j] = math.NaN()
		} else {
			row[j] /= count[j]
		}
	}
	r.at = c.k.Now()
	r.times = append(r.times, c.k.Now().Seconds())
	r.rows = append(r.rows, row...)
	r.client = append(r.client, client[:]...)
}

// nodeSample returns a node's columns over an interval.
func (c *Cluster) nodeSample(o *osd, a, b counters, seconds float64) [13]float64 {
	hot := 0.0
	if o.fio.on {
		hot = 1
	}
	latency := math.NaN()
	if b.reads > a.reads {
		latency = (b.readTime - a.readTime).Seconds() / float64(b.reads-a.reads)
	}
	return [13]float64{
		percent(b.disk.Stalled-a.disk.Stalled, seconds),
		float64(b.disk.BytesRead-a.disk.BytesRead) / seconds / 1e6,
		float64(b.disk.BytesWritten-a.disk.BytesWritten) / seconds / 1e6,
		percent(b.disk.Busy-a.disk.Busy, seconds),
		(b.disk.QueueArea - a.disk.QueueArea) / seconds,
		float64(b.rx-a.rx) / seconds / 1e6,
		float64(b.tx-a.tx) / seconds / 1e6,
		hot,
		percent(b.osdStalled-a.osdStalled, seconds),
		latency,
		float64(c.osdMap.affinity[o.id]) / maxAffinity,
		float64(c.osdMap.reweight[o.id]) / inWeight,
		float64(o.primaries),
	}
}

func percent(part time.Duration, seconds float64) float64 {
	return min(100, max(0, 100*part.Seconds()/seconds))
}
