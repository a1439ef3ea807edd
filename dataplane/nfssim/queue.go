package nfssim

import (
	"math"
	"time"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/sim"
)

// queue is an enforcer in front of a server that serves one piece at a time in dispatch order: a
// device, or a link's direction.
type queue struct {
	name     string
	enforcer *enforcer.Enforcer
	flows    map[string]int // of the enforcer's workloads
	// seconds returns a dispatched piece's service time; leave is called when it has been served.
	seconds func(r *enforcer.Request) float64
	leave   func(k *sim.Kernel, r *enforcer.Request, took time.Duration)

	serving []served // first come, first served, from head on
	head    int
	free    time.Duration // end of the last piece
	carry   float64       // rounding error of the last end

	timer  sim.Timer
	wakeAt time.Duration

	pieces  int64
	work    float64 // cost of dispatched pieces
	busy    time.Duration
	byLimit time.Duration // busy until the end of the arrivals
	most    int           // maximum of waiting and served pieces
}

type served struct {
	r         *enforcer.Request
	end, took time.Duration
}

func newQueue(name string, p enforcer.Parameters) (*queue, error) {
	e, err := enforcer.New(p)
	if err != nil {
		return nil, err
	}
	q := &queue{name: name, enforcer: e, flows: map[string]int{}, wakeAt: -1}
	for i, w := range p.Workloads {
		q.flows[w.Name] = i
	}
	return q, nil
}

// arrive queues a piece.
func (q *queue) arrive(k *sim.Kernel, r *enforcer.Request) {
	q.add(k, r)
	q.pump(k)
}

// add queues a piece that is ignored until pump is called.
func (q *queue) add(k *sim.Kernel, r *enforcer.Request) {
	q.enforcer.Arrive(k.Now(), r)
	q.most = max(q.most, q.enforcer.Queued()+q.enforcer.Outstanding())
}

// pump dispatches all pieces allowed now and schedules its next call.
func (q *queue) pump(k *sim.Kernel) {
	now := k.Now()
	for {
		r, wake := q.enforcer.Next(now)
		if r == nil {
			if wake != enforcer.Forever && wake != q.wakeAt {
				k.Cancel(q.timer)
				q.wakeAt = wake
				q.timer = k.At(wake, (*queueWake)(q), 0)
			}
			return
		}
		q.serve(k, now, r)
	}
}

// serve gives a piece to the server. Its end is rounded to a nanosecond so that the error does not
// add up during a busy period.
func (q *queue) serve(k *sim.Kernel, now time.Duration, r *enforcer.Request) {
	start := q.free
	if start < now {
		start, q.carry = now, 0
	}
	exact := float64(q.seconds(r)*1e9) + q.carry
	took := math.Max(math.Round(exact), 0)
	q.carry = exact - took
	q.free = start + time.Duration(took)
	q.busy += time.Duration(took)
	q.pieces++
	q.work += r.Cost
	if q.head == len(q.serving) {
		q.serving, q.head = q.serving[:0], 0
		k.Post(q.free, (*queueEnd)(q), 0)
	}
	q.serving = append(q.serving, served{r, q.free, time.Duration(took)})
}

type (
	queueEnd  queue
	queueWake queue
)

// Handle is called when the first served piece ends. It dispatches the next piece before it reports
// the end, as a remote server's enforcer does.
func (e *queueEnd) Handle(k *sim.Kernel, _ uint64) {
	q := (*queue)(e)
	done := q.serving[q.head]
	if q.head++; q.head < len(q.serving) {
		k.Post(q.serving[q.head].end, e, 0)
		if q.head >= 64 && 2*q.head >= len(q.serving) {
			q.serving = q.serving[:copy(q.serving, q.serving[q.head:])]
			q.head = 0
		}
	}
	q.enforcer.Done(k.Now(), done.r)
	q.pump(k)
	q.leave(k, done.r, done.took)
}

// Handle is called when a token bucket or a limit lets a piece pass.
func (e *queueWake) Handle(k *sim.Kernel, _ uint64) {
	q := (*queue)(e)
	q.wakeAt = -1
	q.pump(k)
}

// busyUntil returns how long the queue has been busy at time now.
func (q *queue) busyUntil(now time.Duration) time.Duration { return q.busy - max(0, q.free-now) }
