package sim

import (
	"fmt"
	"time"
)

// Target is what clients send their requests to. Serve must, sooner or later, call
// done.Handle(k, id) once; an id is not used twice at the same time.
type Target interface {
	Serve(k *Kernel, id uint64, done Handler)
}

// TargetFunc makes a Target of a function.
type TargetFunc func(k *Kernel, id uint64, done Handler)

// Serve calls the function.
func (f TargetFunc) Serve(k *Kernel, id uint64, done Handler) { f(k, id, done) }

// ClosedLoop is a number of clients of which each has one request in flight, and thinks before it
// sends the next: what is offered follows from how fast it is served. A client's number is the id of
// its requests.
type ClosedLoop struct {
	// Latency holds the requests that have ended since the last Reset.
	Latency Histogram

	target  Target
	think   Distribution
	stream  *Stream
	issued  []time.Duration
	running bool
}

// NewClosedLoop returns n clients at rest.
func NewClosedLoop(n int, think Distribution, stream *Stream, target Target) *ClosedLoop {
	if n < 1 {
		panic(fmt.Sprintf("sim: a closed loop of %d clients", n))
	}
	return &ClosedLoop{target: target, think: think, stream: stream, issued: make([]time.Duration, n)}
}

// Start makes every client think, then send. It is called once.
func (c *ClosedLoop) Start(k *Kernel) {
	c.running = true
	for i := range c.issued {
		k.Post(k.Now()+c.think.Draw(c.stream), (*closedSend)(c), uint64(i))
	}
}

// Stop lets the requests in flight end and sends no more.
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
	// A target may answer within Serve, for ever: even a client that does not think sends its next
	// request from an event of its own.
	k.Post(k.Now()+c.think.Draw(c.stream), (*closedSend)(c), client)
}

// OpenLoop sends requests at times that do not depend on how fast they are served. Latency counts
// from the intended start: a request that had to wait because Limit were in flight waited.
type OpenLoop struct {
	// Latency holds the requests that have ended since the last Reset.
	Latency Histogram
	// Limit is how many requests may be in flight; 0 means any number.
	Limit int

	target   Target
	between  Distribution
	stream   *Stream
	intended []time.Duration // by id
	free     []uint32
	late     ring[time.Duration] // intended, not sent for Limit
	flying   int
	timer    Timer
	offered  uint64
}

// NewOpenLoop returns a source of requests at rest. Exponential times between them make a Poisson
// process, Constant a clock's, HyperExponential a bursty one.
func NewOpenLoop(between Distribution, stream *Stream, target Target) *OpenLoop {
	return &OpenLoop{target: target, between: between, stream: stream}
}

// Start sends the first request one interarrival time from now.
func (o *OpenLoop) Start(k *Kernel) {
	o.timer = k.After(o.between.Draw(o.stream), (*openArrival)(o), 0)
}

// Stop lets the requests in flight, and those that are late, end and sends no others.
func (o *OpenLoop) Stop(k *Kernel) { k.Cancel(o.timer) }

// Offered is how many requests were intended so far.
func (o *OpenLoop) Offered() uint64 { return o.offered }

// InFlight is how many requests have been sent and not ended, and how many are late.
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
