// Package burst writes bursts of objects through the two-choice scheduler from many client processes,
// as in section VI.B of Dai et al. (SC 2014). It verifies acknowledged writes by checksum.
package burst

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

// Options describe the burst.
type Options struct {
	// Nodes is the number of client nodes, each with its own probes and Processes processes.
	Nodes, Processes int
	// Writes is the number of sequential writes per process: Size bytes, each a stripe of File.
	Writes int
	Size   int
	File   string
	// Start is the number of the first stripe.
	Start int
	Seed  uint64
	// Progress, if set, receives the number of completed writes.
	Progress func(done, all int)
}

// Check returns a mistake as an error of one sentence.
func (o Options) Check() error {
	switch {
	case o.Nodes < 1 || o.Processes < 1 || o.Nodes*o.Processes > 1<<20:
		return fmt.Errorf("%d nodes with %d processes each; both are at least 1, and 1048576 processes at most", o.Nodes,
			o.Processes)
	case o.Writes < 1 || o.Size < 1 || o.Size > protocol.MaxData:
		return fmt.Errorf("%d writes of %d bytes; write once or more, 1 to %d bytes", o.Writes, o.Size, protocol.MaxData)
	case o.File == "" || len(o.File) > protocol.MaxName-20:
		return fmt.Errorf("the file's name has %d bytes; allowed are 1 to %d", len(o.File), protocol.MaxName-20)
	case o.Start < 0:
		return fmt.Errorf("the first stripe is %d; it is 0 or more", o.Start)
	}
	return nil
}

// Done is an acknowledged write.
type Done struct {
	Object  string        `json:"object"`
	Size    int           `json:"size"`
	CRC32C  uint32        `json:"crc32c"`
	Stamp   uint64        `json:"stamp"`
	Process int           `json:"process"`
	Target  protocol.Node `json:"target"`
	Start   time.Duration `json:"start_ns"`
	Took    time.Duration `json:"took_ns"`
}

// Failure is a write without acknowledgement.
type Failure struct {
	Object    string `json:"object"`
	Undecided bool   `json:"undecided"`
	Error     string `json:"error"`
}

// Result is a burst's result.
type Result struct {
	Done      []Done
	Failed    []Failure
	Processes []time.Duration // end of each process, 0 if a write of the process failed
	Took      time.Duration
	Scheduler twochoice.Stats
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Fill fills data with the bytes of a write, which the seed and the stripe determine.
func Fill(data []byte, seed, stripe uint64) {
	x := seed*0x9e3779b97f4a7c15 + stripe + 1
	for i := 0; i < len(data); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], x)
		copy(data[i:], word[:])
	}
}

// Run writes a burst. The error is a failure to begin; failed writes are in the result.
func Run(ctx context.Context, c server.Cluster, o Options) (Result, error) {
	if err := o.Check(); err != nil {
		return Result{}, err
	}
	clients := make([]*server.Client, o.Nodes)
	for i := range clients {
		client, err := server.Connect(c)
		if err != nil {
			return Result{}, err
		}
		defer client.Close()
		clients[i] = client
	}
	if err := Connect(ctx, clients); err != nil {
		return Result{}, err
	}
	total := o.Nodes * o.Processes
	r := Result{Processes: make([]time.Duration, total)}
	var mu sync.Mutex
	var all, ready sync.WaitGroup
	var finished atomic.Int64
	begin := make(chan struct{})
	var start time.Time
	for p := range total {
		ready.Add(1)
		all.Go(func() {
			data := make([]byte, o.Size)
			ready.Done()
			<-begin
			ok := true
			for i := range o.Writes {
				done, failure := write(ctx, clients[p/o.Processes], o, p, i, total, data, start)
				mu.Lock()
				if failure != nil {
					ok = false
					data = make([]byte, o.Size) // the client may still use the old buffer
					r.Failed = append(r.Failed, *failure)
				} else {
					r.Done = append(r.Done, done)
				}
				mu.Unlock()
				if n := finished.Add(1); o.Progress != nil {
					o.Progress(int(n), total*o.Writes)
				}
			}
			if ok {
				r.Processes[p] = time.Since(start)
			}
		})
	}
	ready.Wait()
	start = time.Now()
	close(begin)
	all.Wait()
	r.Took = time.Since(start)
	for _, client := range clients {
		r.Scheduler.Add(client.Stats())
	}
	return r, nil
}

// Connecting bounds the wait for all agents.
const Connecting = 2 * time.Minute

// Connect connects all clients to all agents before writes begin, eight clients at a time.
func Connect(ctx context.Context, clients []*server.Client) error {
	ctx, cancel := context.WithTimeout(ctx, Connecting)
	defer cancel()
	errs := make([]error, len(clients))
	room := make(chan struct{}, 8)
	var all sync.WaitGroup
	for i, client := range clients {
		all.Go(func() {
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
				errs[i] = client.Ready(ctx)
			case <-ctx.Done(): // the client that was waited for has the error
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// write writes one stripe. A process's stripes are `total` (the number of processes) apart, as if
// all processes wrote one file together.
func write(ctx context.Context, client *server.Client, o Options, process, i, total int, data []byte,
	start time.Time) (Done, *Failure) {
	stripe := o.Start + i*total + process
	name := fmt.Sprintf("%s/%d", o.File, stripe)
	Fill(data, o.Seed, uint64(stripe))
	began := time.Now()
	written, err := client.Write(ctx, name, 0, data)
	if err != nil {
		var undecided *server.UndecidedError
		return Done{}, &Failure{name, errors.As(err, &undecided), err.Error()}
	}
	return Done{Object: name, Size: o.Size, CRC32C: crc32.Checksum(data, castagnoli), Stamp: written.Stamp,
		Process: process, Target: written.Target, Start: began.Sub(start), Took: time.Since(began)}, nil
}

// Verify reads acknowledged writes with a new client, `parallel` objects at a time. It returns the
// objects that differ from what was written.
func Verify(ctx context.Context, c server.Cluster, writes []Done, parallel int, progress func(done, all int)) ([]Failure,
	error) {
	client, err := server.Connect(c)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var mu sync.Mutex
	var all sync.WaitGroup
	var bad []Failure
	next := make(chan Done)
	var finished atomic.Int64
	for range max(1, parallel) {
		all.Go(func() {
			for w := range next {
				data, err := client.Read(ctx, w.Object, 0, uint64(w.Size))
				if err == nil {
					if sum := crc32.Checksum(data, castagnoli); sum != w.CRC32C {
						err = fmt.Errorf("its checksum is %08x and was %08x when it was acknowledged", sum, w.CRC32C)
					}
				}
				if err != nil {
					mu.Lock()
					bad = append(bad, Failure{Object: w.Object, Error: err.Error()})
					mu.Unlock()
				}
				if n := finished.Add(1); progress != nil {
					progress(int(n), len(writes))
				}
			}
		})
	}
	for _, w := range writes {
		next <- w
	}
	close(next)
	all.Wait()
	return bad, ctx.Err()
}

// Summary is a burst's result as numbers. Times are in seconds; percentiles are null with fewer
// than ten writes beyond them.
type Summary struct {
	Writes          int                 `json:"writes"`
	Failed          int                 `json:"failed"`
	Undecided       int                 `json:"undecided"`
	Bytes           int64               `json:"bytes"`
	Seconds         float64             `json:"seconds"`
	BytesPerSecond  float64             `json:"bytes_per_second"`
	Redirected      uint64              `json:"redirected"`
	RedirectedShare float64             `json:"redirected_share"`
	Probes          uint64              `json:"probes"`
	Unanswered      uint64              `json:"unanswered_probes"`
	Latency         map[string]*float64 `json:"latency_seconds"`
	// ProcessSeconds is when each process ended (figure 14), null if a write of it failed.
	ProcessSeconds []*float64 `json:"process_seconds"`
	// ServerBytes are the bytes each server received (figure 13).
	ServerBytes []int64 `json:"server_bytes"`
}

// Summarize summarizes a burst on the given number of servers.
func Summarize(r Result, servers int) Summary {
	s := Summary{Writes: len(r.Done), Failed: len(r.Failed), Seconds: r.Took.Seconds(), Latency: map[string]*float64{},
		Redirected: r.Scheduler.Redirected, RedirectedShare: r.Scheduler.Share(), Probes: r.Scheduler.Probes,
		Unanswered: r.Scheduler.Unanswered, ServerBytes: make([]int64, servers)}
	for _, f := range r.Failed {
		if f.Undecided {
			s.Undecided++
		}
	}
	var took []time.Duration
	for _, d := range r.Done {
		s.Bytes += int64(d.Size)
		s.ServerBytes[d.Target] += int64(d.Size)
		took = append(took, d.Took)
	}
	s.BytesPerSecond = float64(s.Bytes) / s.Seconds
	slices.Sort(took)
	for name, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99} {
		s.Latency[name] = Quantile(took, q)
	}
	if n := len(took); n > 0 {
		most := took[n-1].Seconds()
		s.Latency["max"] = &most
	}
	for _, p := range r.Processes {
		var at *float64
		if p > 0 {
			seconds := p.Seconds()
			at = &seconds
		}
		s.ProcessSeconds = append(s.ProcessSeconds, at)
	}
	return s
}

// Quantile returns a quantile of sorted times, or nil with fewer than ten beyond it.
func Quantile(sorted []time.Duration, q float64) *float64 {
	at := int(q * float64(len(sorted)))
	if len(sorted)-at < 10 {
		return nil
	}
	v := sorted[at].Seconds()
	return &v
}

// Probed are the durations of probes, each until the slowest server answered.
type Probed struct {
	Servers    int      `json:"servers"`
	Schedulers int      `json:"schedulers"`
	Probes     int      `json:"probes"`
	Lost       int      `json:"lost"`
	Mean       float64  `json:"mean_seconds"`
	P50        *float64 `json:"p50_seconds"`
	P99        *float64 `json:"p99_seconds"`
}

// Probe times probes of the first `servers` servers (figure 11: each scheduler probes all of them
// repeatedly, and the slowest answer counts).
func Probe(ctx context.Context, c server.Cluster, servers, schedulers, times int, size uint64) (Probed, error) {
	probers := make([]prober, schedulers)
	for i := range probers {
		p, err := server.NewProber(c)
		if err != nil {
			return Probed{}, err
		}
		defer p.Close()
		probers[i] = p
	}
	return timed(ctx, probers, servers, times, size)
}

// prober asks servers for their loads and returns the number of answers.
type prober interface {
	Probe(ctx context.Context, nodes []protocol.Node, size uint64) (int, error)
}

// timed lets all probers probe in parallel after each has connected: the cost of connecting must
// not affect any probe.
func timed(ctx context.Context, probers []prober, servers, times int, size uint64) (Probed, error) {
	out := Probed{Servers: servers, Schedulers: len(probers)}
	var mu sync.Mutex
	var all, ready sync.WaitGroup
	var took []time.Duration
	var first error
	nodes := make([]protocol.Node, servers)
	for i := range nodes {
		nodes[i] = protocol.Node(i)
	}
	ready.Add(len(probers))
	for _, p := range probers {
		all.Go(func() {
			_, err := p.Probe(ctx, nodes, size) // connects
			ready.Done()
			ready.Wait()
			for i := 0; i < times && err == nil; i++ {
				start := time.Now()
				var answered int
				answered, err = p.Probe(ctx, nodes, size)
				mu.Lock()
				took = append(took, time.Since(start))
				if answered < servers {
					out.Lost++
				}
				mu.Unlock()
			}
			if err != nil {
				mu.Lock()
				first = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if first != nil {
		return out, first
	}
	slices.Sort(took)
	out.Probes, out.Mean = len(took), Mean(took)
	out.P50, out.P99 = Quantile(took, 0.5), Quantile(took, 0.99)
	return out, nil
}
