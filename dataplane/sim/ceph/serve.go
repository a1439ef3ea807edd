package ceph

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"hotbed/dataplane/sim"
)

// Protocol is the version of the messages; a driver of another version is refused.
const Protocol = 1

// Sources is the digest of the program's sources (testbed/closure.py), set by the linker.
var Sources string

// request is any message of the driver; Op determines which fields count.
type request struct {
	Op string `json:"op"`

	Protocol int             `json:"protocol"` // open
	Config   json.RawMessage `json:"config"`

	Count int64  `json:"count"` // fill
	Bytes int64  `json:"bytes"`
	Host  string `json:"host"`
	PID   int64  `json:"pid"`

	Nodes []int   `json:"nodes"` // load
	On    bool    `json:"on"`
	Share float64 `json:"share"`
	At    float64 `json:"at_s"` // 0: now

	Bench BenchSpec `json:"bench"` // start

	To float64 `json:"to_s"` // advance
	// settle, at most For seconds
	For float64 `json:"for_s"`

	PGs  bool `json:"pgs"`  // observe
	Full bool `json:"full"` // everything, not only changes

	Actions []Action `json:"actions"` // act

	Fault Fault `json:"fault"` // break

	From int `json:"from"` // samples: from this one on
}

// server serves one cluster.
type server struct {
	*Cluster

	lastOSDs []osdReport // as last reported
	lastPGs  []pgReport
	allPGs   bool // all PGs were reported once
}

// osdReport is the map's entry of an OSD.
type osdReport struct {
	affinity, reweight float64
	flags              byte
}

// pgReport is the location of a PG.
type pgReport struct {
	known bool
	sets  [2 * maxSize]int32 // up and acting, none at the end
	flags byte
	bytes int64
}

// Serve answers requests about a modelled Ceph until the driver closes its end. busy is true while
// it computes an answer.
func Serve(input io.Reader, output io.Writer, busy *atomic.Bool) error {
	in, out := bufio.NewReaderSize(input, 1<<16), bufio.NewWriterSize(output, 1<<16)
	s := &server{}
	for {
		header, err := readFrame(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		busy.Store(true)
		var req request
		r := &reply{}
		if err := json.Unmarshal(header, &req); err != nil {
			r.Message = fmt.Sprintf("the request is not understood: %v", err)
		} else if err := s.answer(&req, r); err != nil {
			*r = reply{Message: err.Error()}
		} else {
			r.OK = true
		}
		busy.Store(false)
		if err := writeFrame(out, r); err != nil {
			return err
		}
	}
}

func (s *server) answer(req *request, r *reply) error {
	if req.Op == "open" {
		return s.open(req, r)
	}
	if s.Cluster == nil {
		return fmt.Errorf("%s before open", req.Op)
	}
	switch req.Op {
	case "fill":
		prefix := "benchmark_data_" + req.Host + "_" + strconv.FormatInt(req.PID, 10) + "_object"
		return s.Fill(req.Count, req.Bytes, func(i int64) []byte { return strconv.AppendInt([]byte(prefix), i, 10) })
	case "fill-each":
		return s.FillEach(req.Count, req.Bytes)
	case "activity":
		s.activity(r)
	case "open-loop":
		return s.openLoop(r)
	case "load":
		return s.load(req)
	case "forget-loads":
		s.ForgetPlan()
	case "start":
		return s.Start(req.Bench)
	case "advance":
		if !(req.To >= 0 && req.To < 1e9) {
			return fmt.Errorf("an advance to %g s", req.To)
		}
		s.Advance(sim.Seconds(req.To))
		begun, done := s.bench != nil && s.bench.begun, s.bench != nil && s.bench.done
		r.Result = map[string]any{"now_s": s.seconds(), "begun": begun, "done": done}
	case "settle":
		rest := s.Settle(sim.Seconds(req.For))
		r.Result = map[string]any{"at_rest": rest, "now_s": s.seconds()}
	case "observe":
		s.observe(req, r)
	case "act":
		effects := s.Act(req.Actions)
		r.Result = map[string]any{"effects": effects, "now_s": s.seconds()}
	case "save":
		r.Result = s.Save()
	case "record":
		if req.On {
			s.Record()
		} else {
			s.record.on = false
		}
	case "samples":
		s.samples(req, r)
	case "result":
		return s.result(r)
	case "break":
		return s.Break(req.Fault)
	case "stats":
		s.stats(r)
	default:
		return fmt.Errorf("there is no request %q", req.Op)
	}
	return nil
}

func (s *server) seconds() float64 { return s.k.Now().Seconds() }

func (s *server) open(req *request, r *reply) error {
	if req.Protocol != Protocol {
		return fmt.Errorf("the driver speaks protocol %d, this program %d: run make setup",
			req.Protocol, Protocol)
	}
	config := Config{}
	if err := json.Unmarshal(req.Config, &config); err != nil {
		return fmt.Errorf("the configuration is not understood: %w", err)
	}
	cluster, err := New(config)
	if err != nil {
		return err
	}
	*s = server{Cluster: cluster, lastOSDs: make([]osdReport, config.OSDs), lastPGs: make([]pgReport, config.PGs)}
	r.Result = map[string]any{"capacity_iops": config.Capacity(), "columns": Columns, "sources": Sources}
	return nil
}

func (s *server) load(req *request) error {
	if req.On && !(req.Share >= 0 && req.Share <= 1) {
		return fmt.Errorf("a load of %g of a disk, allowed is 0 (a hotspot) to 1", req.Share)
	}
	for _, node := range req.Nodes {
		if !s.hasOSD(node) {
			return fmt.Errorf("there is no node %d", node)
		}
	}
	for _, node := range req.Nodes {
		if req.At > 0 {
			s.PlanLoad(sim.Seconds(req.At), node, req.On, req.Share)
		} else {
			s.SetLoad(node, req.On, req.Share)
		}
	}
	return nil
}

// observe reports every node's cumulative signals, and changes of the map since the last report. The
// signals are the seconds with at least one task of the node, and of the daemon, waiting for I/O,
// the number and the latencies' sum of client reads, the latter also without the OSD's own queue, and
// the number and the latencies' sum of client writes.
func (s *server) observe(req *request, r *reply) {
	signals := make([]float64, 0, 7*len(s.osds))
	hot := make([]byte, len(s.osds))
	var ids []int32
	var weights []float64
	var flags []byte
	for i, o := range s.osds {
		signals = append(signals, o.disk.Stats(s.k).Stalled.Seconds(), o.stalled.Some(s.k.Now()).Seconds(),
			float64(o.reads), o.readTime.Seconds(), o.readService.Seconds(),
			float64(o.writes), o.writeTime.Seconds())
		hot[i] = flag(o.fio.on, 1)
		m := s.osdMap
		v := osdReport{float64(m.affinity[i]) / maxAffinity, float64(m.reweight[i]) / inWeight,
			flag(m.up[i], 1) | flag(m.reweight[i] > 0, 2)}
		if v == s.lastOSDs[i] && !req.Full {
			continue
		}
		s.lastOSDs[i] = v
		ids = append(ids, int32(i))
		weights = append(weights, v.affinity, v.reweight)
		flags = append(flags, v.flags)
	}
	r.Result = map[string]any{"now_s": s.seconds(), "epoch": s.osdMap.epoch}
	r.floats("signals", signals)
	r.bytes("hot", hot)
	r.ints("osd_ids", ids)
	r.floats("osd_weights", weights)
	r.bytes("osd_flags", flags)
	if req.PGs {
		s.observePGs(req, r)
	}
}

func flag(on bool, bit byte) byte {
	if on {
		return bit
	}
	return 0
}

func (s *server) observePGs(req *request, r *reply) {
	size := s.cfg.Size
	which := s.TakeChanges()
	if req.Full || !s.allPGs {
		which = make([]int32, len(s.pgs))
		for i := range which {
			which[i] = int32(i)
		}
		s.allPGs = true
	}
	var ids, sets []int32
	var flags []byte
	var bytes []int64
	for _, pg := range which {
		v := s.pgReport(pg)
		if v == s.lastPGs[pg] && !req.Full {
			continue
		}
		s.lastPGs[pg] = v
		ids = append(ids, pg)
		sets = append(sets, v.sets[:2*size]...)
		flags = append(flags, v.flags)
		bytes = append(bytes, v.bytes)
	}
	r.ints("pg_ids", ids)
	r.ints("pg_sets", sets)
	r.bytes("pg_flags", flags)
	r.longs("pg_bytes", bytes)
}

func (c *Cluster) pgReport(pg int32) pgReport {
	size, state := c.cfg.Size, &c.pgs[pg]
	v := pgReport{known: true, flags: flag(c.osdMap.pinned(pg), 1) | flag(state.active, 2), bytes: state.bytes}
	fill(v.sets[:size], c.osdMap.of(pg))
	fill(v.sets[size:2*size], c.members(pg))
	return v
}

func (s *server) samples(req *request, r *reply) {
	d := &s.record
	first, nodes, width := min(max(0, req.From), len(d.times)), 0, 0
	if len(d.times) > 0 {
		width = len(d.rows) / len(d.times)
		nodes = width / len(Columns)
	}
	r.Result = map[string]any{"bench_start_s": d.from.Seconds(), "nodes": nodes, "columns": Columns}
	r.floats("times", d.times[first:])
	r.floats("rows", d.rows[first*width:])
	r.floats("client", d.client[first*4:])
}

func (s *server) result(r *reply) error {
	b := s.bench
	if b == nil {
		return errors.New("no benchmark was started")
	}
	fio := make([]int64, len(s.osds))
	for i, o := range s.osds {
		fio[i] = o.fio.done()
	}
	var buckets []int64
	for _, bucket := range b.total.Buckets() {
		buckets = append(buckets, bucket.Low, bucket.High, int64(bucket.Count))
	}
	r.Result = map[string]any{
		"begun": b.begun, "done": b.done, "start_s": b.start.Seconds(), "seconds": b.seconds(s.k.Now()),
		"operations": b.finished, "in_time": b.inTime, "bytes": b.finished * b.spec.ObjectSize,
		"latency_sum_s": b.total.Sum().Seconds(), "latency_min_s": b.total.Min().Seconds(),
		"latency_max_s": b.total.Max().Seconds(),
	}
	r.floats("series", b.rows())
	r.longs("histogram", buckets)
	r.longs("fio_reads", fio)
	return nil
}

func (s *server) stats(r *reply) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	result := map[string]any{
		"events": s.k.Events(), "now_s": s.seconds(), "heap_bytes": memory.HeapAlloc,
		"system_bytes": memory.Sys, "moves": s.mover.live, "epoch": s.osdMap.epoch,
	}
	if s.monitor.stalled { // all PGs of the last map change serve again
		result["stall_s"] = s.monitor.stall.Round(time.Microsecond).Seconds()
	}
	r.Result = result
}

// activity reports the client operations that PGs have served since the start, the OSDs' operations
// with those of their replicas, and which PGs are not clean: they do not serve, or their data is not
// where the map wants it.
func (s *server) activity(r *reply) {
	pgs := make([]int64, 0, 2*len(s.pgs))
	var unclean []int32
	for i := range s.pgs {
		state := &s.pgs[i]
		pgs = append(pgs, state.reads, state.writes)
		if !state.active || state.hold != nil || state.moves > 0 {
			unclean = append(unclean, int32(i))
		}
	}
	osds := make([]int64, 0, 2*len(s.osds))
	for _, o := range s.osds {
		osds = append(osds, o.reads, o.writes+o.replicas)
	}
	r.Result = map[string]any{"now_s": s.seconds()}
	r.longs("pgs", pgs)
	r.longs("osds", osds)
	r.ints("unclean", unclean)
}

// openLoop reports the results of open-loop writes: six numbers per second, three per request.
func (s *server) openLoop(r *reply) error {
	b := s.bench
	if b == nil || b.open == nil {
		return errors.New("no open-loop writes were started")
	}
	r.Result = map[string]any{"begun": b.begun, "done": b.done, "start_s": b.start.Seconds()}
	r.floats("series", b.open.rows(b.done))
	r.floats("requests", b.open.requests)
	return nil
}

// A message is a frame: the length of its header (4 bytes, little endian), the header in JSON, and
// blocks of numbers. The header announces the blocks under "blocks" as {name, type, count}. Blocks
// are consecutive, little endian f64, i64, i32 or u8. The driver's messages have no blocks.

// maxHeader is the longest header that is read.
const maxHeader = 64 << 20

// block is an array that follows a header.
type block struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Count int    `json:"count"`
	data  []byte
}

// reply is the answer to a request.
type reply struct {
	OK      bool    `json:"ok"`
	Message string  `json:"message,omitempty"`
	Result  any     `json:"result,omitempty"`
	Blocks  []block `json:"blocks,omitempty"`
}

func (r *reply) floats(name string, values []float64) {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
	}
	r.Blocks = append(r.Blocks, block{name, "f64", len(values), data})
}

func (r *reply) longs(name string, values []int64) {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	r.Blocks = append(r.Blocks, block{name, "i64", len(values), data})
}

func (r *reply) ints(name string, values []int32) {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, uint32(v))
	}
	r.Blocks = append(r.Blocks, block{name, "i32", len(values), data})
}

func (r *reply) bytes(name string, values []byte) {
	r.Blocks = append(r.Blocks, block{name, "u8", len(values), values})
}

// readFrame reads a request's header; it returns io.EOF if the driver has gone.
func readFrame(in *bufio.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > maxHeader {
		return nil, fmt.Errorf("a request of %d bytes, allowed are %d", n, maxHeader)
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(in, header); err != nil {
		return nil, fmt.Errorf("a request that was cut off: %w", err)
	}
	return header, nil
}

func writeFrame(out *bufio.Writer, r *reply) error {
	header, err := json.Marshal(r)
	if err != nil {
		return err
	}
	var size [4]byte
	binary.LittleEndian.PutUint32(size[:], uint32(len(header)))
	_, _ = out.Write(size[:]) // Flush returns the first error
	_, _ = out.Write(header)
	for _, b := range r.Blocks {
		_, _ = out.Write(b.data)
	}
	return out.Flush()
}
