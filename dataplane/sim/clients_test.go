package sim

import (
	"fmt"
	"testing"
	"time"
)

// Target serves clients' requests. Serve must call done.Handle(k, id) exactly once, now or later;
// an id is not reused while in use.
type Target interface {
	Serve(k *Kernel, id uint64, done Handler)
}

// TargetFunc turns a function into a Target.
type TargetFunc func(k *Kernel, id uint64, done Handler)

// Serve calls the function.
func (f TargetFunc) Serve(k *Kernel, id uint64, done Handler) { f(k, id, done) }

// ClosedLoop is a number of clients that each have one request in flight and think before the next.
// The offered load thus depends on the service speed. A client's number is the id of its requests.
type ClosedLoop struct {
	// Latency holds the requests that ended since the last Reset.
	Latency Histogram

	target  Target
	think   Distribution
	stream  *Stream
	issued  []time.Duration
	running bool
}

// NewClosedLoop returns n idle clients.
func NewClosedLoop(n int, think Distribution, stream *Stream, target Target) *ClosedLoop {
	if n < 1 {
		panic(fmt.Sprintf("sim: a closed loop of %d clients", n))
	}
	return &ClosedLoop{target: target, think: think, stream: stream, issued: make([]time.Duration, n)}
}

// Start makes every client think, then send. It must be called once.
func (c *ClosedLoop) Start(k *Kernel) {
	c.running = true
	for i := range c.issued {
		k.Post(k.Now()+c.think.Draw(c.stream), (*closedSend)(c), uint64(i))
	}
}

// Stop sends no more requests; requests in flight end normally.
func (c *ClosedLoop) Stop() { c.running = false }

type (
	closedSend ClosedLoop
	closedDone ClosedLoop
)

func (e *closedSend) Handle(k *Kernel, client uint64) {
	c := (*ClosedLoop)(e)
	if c.running {
		c.issued[client] = k.Now()
		c.target.Serve(k, client, (*closedDone)(c))
	}
}

func (e *closedDone) Handle(k *Kernel, client uint64) {
	c := (*ClosedLoop)(e)
	c.Latency.Add(k.Now() - c.issued[client])
	// A target may answer within Serve, endlessly. So even a client that does not think sends its
	// next request from a separate event.
	k.Post(k.Now()+c.think.Draw(c.stream), (*closedSend)(c), client)
}

// OpenLoop sends requests at times independent of the service speed. Latency counts from the
// intended start, including any wait while Limit requests were in flight.
type OpenLoop struct {
	// Latency holds the requests that ended since the last Reset.
	Latency Histogram
	// Limit is the maximum number of requests in flight; 0 means unlimited.
	Limit int

	target   Target
	between  Distribution
	stream   *Stream
	intended []time.Duration // by id
	free     []uint32
	late     ring[time.Duration] // intended, not yet sent because of Limit
	flying   int
	timer    Timer
	offered  uint64
}

// NewOpenLoop returns an idle source of requests. Exponential interarrival times make a Poisson
// process, Constant a regular one, HyperExponential a bursty one.
func NewOpenLoop(between Distribution, stream *Stream, target Target) *OpenLoop {
	return &OpenLoop{target: target, between: between, stream: stream}
}

// Start sends the first request one interarrival time from now.
func (o *OpenLoop) Start(k *Kernel) {
	o.timer = k.After(o.between.Draw(o.stream), (*openArrival)(o), 0)
}

// Stop sends no new requests; requests in flight and late requests end normally.
func (o *OpenLoop) Stop(k *Kernel) { k.Cancel(o.timer) }

// Offered returns the number of requests intended so far.
func (o *OpenLoop) Offered() uint64 { return o.offered }

// InFlight returns the number of requests in flight and the number of late requests.
func (o *OpenLoop) InFlight() (sent, late int) { return o.flying, o.late.n }

type (
	openArrival OpenLoop
	openDone    OpenLoop
)

func (e *openArrival) Handle(k *Kernel, _ uint64) {
	o := (*OpenLoop)(e)
	o.offered++
	o.timer = k.After(o.between.Draw(o.stream), e, 0)
	if o.Limit > 0 && o.flying >= o.Limit {
		o.late.push(k.Now())
		return
	}
	o.send(k, k.Now())
}

func (o *OpenLoop) send(k *Kernel, intended time.Duration) {
	var id uint32
	if n := len(o.free); n > 0 {
		id = o.free[n-1]
		o.free = o.free[:n-1]
	} else {
		o.intended = append(o.intended, 0)
		id = uint32(len(o.intended) - 1)
	}
	o.intended[id] = intended
	o.flying++
	o.target.Serve(k, uint64(id), (*openDone)(o))
}

func (e *openDone) Handle(k *Kernel, id uint64) {
	o := (*OpenLoop)(e)
	o.Latency.Add(k.Now() - o.intended[id])
	o.free = append(o.free, uint32(id))
	o.flying--
	if o.late.n > 0 {
		o.send(k, o.late.pop())
	}
}

func TestAClosedLoopKeepsOneRequestAClientInFlight(t *testing.T) {
	k := New()
	st := NewStation(1)
	flying := map[uint64]bool{}
	target := TargetFunc(func(k *Kernel, id uint64, done Handler) {
		if flying[id] {
			t.Fatalf("client %d sent a second request", id)
		}
		flying[id] = true
		st.Submit(k, 10*ms, Func(func(k *Kernel, id uint64) {
			delete(flying, id)
			done.Handle(k, id)
		}), id)
	})
	loop := NewClosedLoop(4, Constant(20*ms), NewStream(1, "think"), target)
	loop.Start(k)
	k.RunUntil(time.Second)
	// The first ends at 30 ms, then one every 10 ms: the station is never idle after 20 ms.
	if n := loop.Latency.Count(); n != 98 {
		t.Errorf("%d requests ended, want 98", n)
	}
	if got := loop.Latency.Max(); got != 40*ms {
		t.Errorf("the longest took %v", got)
	}
	loop.Stop()
	k.Run()
	if k.Now() > 1100*ms || len(flying) != 0 {
		t.Errorf("stopped at %v with %d in flight", k.Now(), len(flying))
	}
}

func TestAnImmediateTargetDoesNotRecurse(t *testing.T) {
	k := New()
	loop := NewClosedLoop(1, Constant(0), NewStream(1, "think"),
		TargetFunc(func(k *Kernel, id uint64, done Handler) { done.Handle(k, id) }))
	loop.Start(k)
	for range 1000000 {
		k.Step()
	}
	if n := loop.Latency.Count(); n < 999999 {
		t.Errorf("%d requests", n)
	}
}

func TestAnOpenLoopCountsFromTheIntendedStart(t *testing.T) {
	k := New()
	inFlight, most := 0, 0
	target := TargetFunc(func(k *Kernel, id uint64, done Handler) {
		inFlight++
		most = max(most, inFlight)
		k.After(25*ms, Func(func(k *Kernel, id uint64) {
			inFlight--
			done.Handle(k, id)
		}), id)
	})
	src := NewOpenLoop(Constant(10*ms), NewStream(1, "arrivals"), target)
	src.Limit = 2
	src.Start(k)
	k.RunUntil(1005 * ms)
	if src.Offered() != 100 || most != 2 {
		t.Errorf("%d offered, %d at most in flight", src.Offered(), most)
	}
	sent, late := src.InFlight()
	if ended := src.Latency.Count(); ended != 78 || sent != 2 || late != 20 {
		t.Errorf("%d ended, %d in flight, %d late", ended, sent, late)
	}
	src.Stop(k)
	k.Run()
	// 25 ms serve two requests, and 2.5 are intended: the last of 100, intended at 1 s, waits for
	// 49 pairs.
	if got, want := src.Latency.Max(), 10*ms+50*25*ms-990*ms; src.Latency.Count() != 100 ||
		got < want || got > want+15*ms {
		t.Errorf("%d ended, the last took %v, want about %v", src.Latency.Count(), got, want)
	}
}

func TestStationsCrashAndSlowDown(t *testing.T) {
	k, r := New(), &recorder{}
	st := NewStation(2)
	for i := range uint64(5) {
		st.Submit(k, 10*ms, r, i)
	}
	k.RunUntil(15 * ms)
	st.Crash(k)
	st.Submit(k, 10*ms, r, 9)
	k.RunUntil(100 * ms)
	if s := st.Stats(k); len(r.args) != 2 || s.Dropped != 4 || s.Queue != 0 || s.Busy != 0.03 {
		t.Errorf("ended %v, stats %+v", r.args, s)
	}
	st.Restart(k)
	st.Slow(3)
	st.Submit(k, 10*ms, r, 10)
	k.Run()
	if k.Now() != 130*ms || r.args[2] != 10 {
		t.Errorf("ended %v at %v", r.args, k.Now())
	}
}
