package simbridge

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/sim/ceph"
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

	Bench ceph.BenchSpec `json:"bench"` // start

	To float64 `json:"to_s"` // advance
	// settle, at most For seconds
	For float64 `json:"for_s"`

	PGs  bool `json:"pgs"`  // observe
	Full bool `json:"full"` // everything, not only changes

	Actions []ceph.Action `json:"actions"` // act

	Fault ceph.Fault `json:"fault"` // break

	From int `json:"from"` // samples: from this one on
}

// cephServer serves one cluster.
type cephServer struct {
	cluster *ceph.Cluster
	config  ceph.Config

	osds    []ceph.OSDView // as last reported
	pgs     []pgTold
	toldPGs bool // all PGs were reported once
}

type pgTold struct {
	known bool
	sets  [20]int32 // up and acting, -1 at the end
	flags byte
	bytes int64
}

// ServeCeph answers requests about a modelled Ceph until the driver closes its end. busy is true
// while it computes an answer.
func ServeCeph(input io.Reader, output io.Writer, busy *atomic.Bool) error {
	in, out := bufio.NewReaderSize(input, 1<<16), bufio.NewWriterSize(output, 1<<16)
	s := &cephServer{}
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

func (s *cephServer) answer(req *request, r *reply) error {
	if req.Op == "open" {
		return s.open(req, r)
	}
	if s.cluster == nil {
		return fmt.Errorf("%s before open", req.Op)
	}
	switch req.Op {
	case "fill":
		return s.fill(req)
	case "fill-each":
		return s.cluster.FillEach(req.Count, req.Bytes)
	case "activity":
		s.activity(r)
	case "open-loop":
		return s.openLoop(r)
	case "load":
		return s.load(req)
	case "forget-loads":
		s.cluster.ForgetPlan()
	case "start":
		return s.cluster.Start(req.Bench)
	case "advance":
		return s.advance(req, r)
	case "settle":
		rest := s.cluster.Settle(sim.Seconds(req.For))
		r.Result = map[string]any{"at_rest": rest, "now_s": s.now()}
	case "observe":
		s.observe(req, r)
	case "act":
		effects := s.cluster.Act(req.Actions)
		r.Result = map[string]any{"effects": effects, "now_s": s.now()}
	case "save":
		r.Result = s.cluster.Save()
	case "record":
		if req.On {
			s.cluster.Record()
		} else {
			s.cluster.StopRecord()
		}
	case "samples":
		s.samples(req, r)
	case "result":
		return s.result(r)
	case "break":
		return s.cluster.Break(req.Fault)
	case "stats":
		s.stats(r)
	default:
		return fmt.Errorf("there is no request %q", req.Op)
	}
	return nil
}

func (s *cephServer) now() float64 { return s.cluster.Now().Seconds() }

func (s *cephServer) open(req *request, r *reply) error {
	if req.Protocol != Protocol {
		return fmt.Errorf("the driver speaks protocol %d, this program %d: run make setup",
			req.Protocol, Protocol)
	}
	config := ceph.Config{}
	if err := json.Unmarshal(req.Config, &config); err != nil {
		return fmt.Errorf("the configuration is not understood: %w", err)
	}
	cluster, err := ceph.New(config)
	if err != nil {
		return err
	}
	*s = cephServer{cluster: cluster, config: config}
	s.osds = make([]ceph.OSDView, config.OSDs)
	s.pgs = make([]pgTold, config.PGs)
	r.Result = map[string]any{"capacity_iops": config.Capacity(), "columns": ceph.Columns,
		"sources": Sources}
	return nil
}

func (s *cephServer) fill(req *request) error {
	prefix := "benchmark_data_" + req.Host + "_" + strconv.FormatInt(req.PID, 10) + "_object"
	return s.cluster.Fill(req.Count, req.Bytes, func(i int64) []byte {
		return strconv.AppendInt([]byte(prefix), i, 10)
	})
}

func (s *cephServer) load(req *request) error {
	if req.On && !(req.Share >= 0 && req.Share <= 1) {
		return fmt.Errorf("a load of %g of a disk, allowed is 0 (a hotspot) to 1", req.Share)
	}
	for _, node := range req.Nodes {
		if node < 0 || node >= s.cluster.OSDs() {
			return fmt.Errorf("there is no node %d", node)
		}
	}
	for _, node := range req.Nodes {
		if req.At > 0 {
			s.cluster.PlanLoad(sim.Seconds(req.At), node, req.On, req.Share)
		} else {
			s.cluster.SetLoad(node, req.On, req.Share)
		}
	}
	return nil
}

func (s *cephServer) advance(req *request, r *reply) error {
	if !(req.To >= 0 && req.To < 1e9) {
		return fmt.Errorf("an advance to %g s", req.To)
	}
	s.cluster.Advance(sim.Seconds(req.To))
	result, _ := s.cluster.Result()
	r.Result = map[string]any{"now_s": s.now(), "begun": result.Begun, "done": result.Done}
	return nil
}

// observe reports every node's cumulative signals, and changes of the map since the last report.
func (s *cephServer) observe(req *request, r *reply) {
	c := s.cluster
	n := c.OSDs()
	signals := make([]float64, 0, 4*n)
	hot := make([]byte, n)
	for i := range n {
		p := c.Pressure(i)
		signals = append(signals, p.Node.Seconds(), p.OSD.Seconds(), float64(p.Reads),
			p.ReadTime.Seconds())
		if on, _ := c.Hot(i); on {
			hot[i] = 1
		}
	}
	r.Result = map[string]any{"now_s": s.now(), "epoch": c.Epoch()}
	r.floats("signals", signals)
	r.bytes("hot", hot)
	s.observeOSDs(req, r)
	if req.PGs {
		s.observePGs(req, r)
	}
}

func (s *cephServer) observeOSDs(req *request, r *reply) {
	var ids []int32
	var weights []float64
	var flags []byte
	for i := range s.osds {
		v := s.cluster.OSD(i)
		if v == s.osds[i] && !req.Full {
			continue
		}
		s.osds[i] = v
		ids = append(ids, int32(i))
		weights = append(weights, v.Affinity, v.Reweight)
		flags = append(flags, flag(v.Up, 1)|flag(v.In, 2))
	}
	r.ints("osd_ids", ids)
	r.floats("osd_weights", weights)
	r.bytes("osd_flags", flags)
}

func flag(on bool, bit byte) byte {
	if on {
		return bit
	}
	return 0
}

func (s *cephServer) observePGs(req *request, r *reply) {
	count, size := s.cluster.PGs()
	which := s.cluster.TakeChanges()
	if req.Full || !s.toldPGs {
		which = make([]int32, count)
		for i := range which {
			which[i] = int32(i)
		}
		s.toldPGs = true
	}
	var ids, sets []int32
	var flags []byte
	var bytes []int64
	for _, i := range which {
		v := s.cluster.PG(int(i))
		told := pgTold{known: true, flags: flag(v.Upmap, 1) | flag(v.Active, 2), bytes: v.Bytes}
		put(told.sets[:size], v.Up)
		put(told.sets[size:2*size], v.Acting)
		if told == s.pgs[i] && !req.Full {
			continue
		}
		s.pgs[i] = told
		ids = append(ids, i)
		sets = append(sets, told.sets[:2*size]...)
		flags = append(flags, told.flags)
		bytes = append(bytes, told.bytes)
	}
	r.ints("pg_ids", ids)
	r.ints("pg_sets", sets)
	r.bytes("pg_flags", flags)
	r.longs("pg_bytes", bytes)
}

func put(into, set []int32) {
	n := copy(into, set)
	for ; n < len(into); n++ {
		into[n] = -1
	}
}

func (s *cephServer) samples(req *request, r *reply) {
	times, rows, client, from := s.cluster.Samples()
	first := min(max(0, req.From), len(times))
	var flat, served []float64
	for i := first; i < len(times); i++ {
		flat = append(flat, rows[i]...)
		served = append(served, client[i][:]...)
	}
	nodes := 0
	if len(rows) > 0 {
		nodes = len(rows[0]) / len(ceph.Columns)
	}
	r.Result = map[string]any{"bench_start_s": from, "nodes": nodes, "columns": ceph.Columns}
	r.floats("times", times[first:])
	r.floats("rows", flat)
	r.floats("client", served)
}

func (s *cephServer) result(r *reply) error {
	b, there := s.cluster.Result()
	if !there {
		return errors.New("no benchmark was started")
	}
	var series []float64
	for _, second := range b.Series {
		series = append(series, float64(second.Finished), second.Latency.Seconds(),
			float64(second.InFlight))
	}
	fio := make([]int64, s.cluster.OSDs())
	for i := range fio {
		_, fio[i] = s.cluster.Hot(i)
	}
	r.Result = map[string]any{
		"begun": b.Begun, "done": b.Done, "start_s": b.Start.Seconds(), "seconds": b.Seconds,
		"operations": b.Finished, "in_time": b.InTime, "bytes": b.Bytes,
		"latency_sum_s": b.Latency.Sum().Seconds(), "latency_min_s": b.Latency.Min().Seconds(),
		"latency_max_s": b.Latency.Max().Seconds(),
	}
	r.floats("series", series)
	r.longs("histogram", ceph.Buckets(b.Latency))
	r.longs("fio_reads", fio)
	return nil
}

func (s *cephServer) stats(r *reply) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	stall, known := s.cluster.Stall()
	result := map[string]any{
		"events": s.cluster.Events(), "now_s": s.now(), "heap_bytes": memory.HeapAlloc,
		"system_bytes": memory.Sys, "moves": s.cluster.Misplaced(), "epoch": s.cluster.Epoch(),
	}
	if known {
		result["stall_s"] = stall.Round(time.Microsecond).Seconds()
	}
	r.Result = result
}

// activity reports the operations that PGs and OSDs have served since the start, and which PGs are
// not clean.
func (s *cephServer) activity(r *reply) {
	c := s.cluster
	groups, _ := c.PGs()
	pgs := make([]int64, 0, 2*groups)
	var unclean []int32
	for i := range groups {
		reads, writes := c.PGWork(i)
		pgs = append(pgs, reads, writes)
		if !c.Clean(i) {
			unclean = append(unclean, int32(i))
		}
	}
	osds := make([]int64, 0, 2*c.OSDs())
	for i := range c.OSDs() {
		reads, writes := c.OSDWork(i)
		osds = append(osds, reads, writes)
	}
	r.Result = map[string]any{"now_s": s.now()}
	r.longs("pgs", pgs)
	r.longs("osds", osds)
	r.ints("unclean", unclean)
}

// openLoop reports the results of open-loop writes: six numbers per second, three per request.
func (s *cephServer) openLoop(r *reply) error {
	seconds, requests, there := s.cluster.Open()
	if !there {
		return errors.New("no open-loop writes were started")
	}
	series := make([]float64, 0, 6*len(seconds))
	for _, v := range seconds {
		series = append(series, float64(v.Intended), float64(v.Finished), v.Latency.Seconds(),
			v.Longest.Seconds(), float64(v.Outstanding), v.Oldest.Seconds())
	}
	rows := make([]float64, 0, 3*len(requests))
	for _, v := range requests {
		rows = append(rows, v.At.Seconds(), v.Latency.Seconds(), float64(v.PG))
	}
	b, _ := s.cluster.Result()
	r.Result = map[string]any{"begun": b.Begun, "done": b.Done, "start_s": b.Start.Seconds()}
	r.floats("series", series)
	r.floats("requests", rows)
	return nil
}
