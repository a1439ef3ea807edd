package cosbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"hotbed/dataplane/cosbench/storage"
)

// sample is one request that has ended. Times are since the stage's start.
type sample struct {
	operation uint8
	failed    uint8         // 0: it succeeded, else 1 + the index of its kind in failureKinds
	begin     time.Duration // when its operation began; in open loop: was to begin
	end       time.Duration
	response  time.Duration
	transfer  time.Duration // the part of it in which the object's bytes went over
	bytes     int64
}

// window is when what is measured begins and ends, since the stage's start.
type window struct {
	begin, end time.Duration
	timeout    time.Duration // when workers stop; 0: never for the time's sake
}

// forever is the end of a window without one.
const forever = time.Duration(1<<63 - 1)

func windowOf(work *Work) window {
	if work.Runtime == 0 {
		return window{0, forever, 0}
	}
	begin := time.Duration(work.Rampup) * time.Second
	end := begin + time.Duration(work.Runtime)*time.Second
	return window{begin, end, end + time.Duration(work.Rampdown)*time.Second}
}

// holds is COSBench's rule: what began and ended inside the window counts.
func (w window) holds(s *sample) bool {
	return s.begin >= w.begin && s.begin < w.end && s.end > w.begin && s.end <= w.end
}

// workRun is a work while it runs.
type workRun struct {
	*workPlan
	window   window
	start    time.Time
	pool     *pool
	arrivals *arrivals // nil: closed loop
	workers  []*worker
	stop     atomic.Bool   // nothing new is begun
	stopping chan struct{} // closed then
	ended    atomic.Bool   // all workers have
	warn     func(string)
	failures [8]atomic.Bool // of which kind one has been shown
	kept     atomic.Bool    // a container that could not be removed has been shown
}

// tell shows the first failure of each kind.
func (r *workRun) tell(err error) {
	if kind := failureKind(err); !r.failures[kind].Swap(true) {
		r.warn(fmt.Sprintf("the first failure of its kind (%s): %v", failureKinds[kind], err))
	}
}

// remains tells of the first container that could not be removed.
func (r *workRun) remains(container string, err error) {
	if !r.kept.Swap(true) {
		r.warn(fmt.Sprintf("container %s could not be removed, or not yet: %v", container, err))
	}
}

// worker does one operation after the other on a connection of its own.
type worker struct {
	index, workers int // from 1, of so many
	run            *workRun
	random         *rand.Rand
	store          storage.Storage
	body           body
	buffer         []byte
	timer          *time.Timer

	began      time.Duration // of the current operation
	last       time.Duration // end of the latest request
	operations int           // done inside the window
	bytes      int64         // moved inside the window

	mu      sync.Mutex
	samples []sample // since they were last taken
}

// readBuffer is what a worker reads at once, bytes: less where there are very many workers.
func readBuffer(workers int) int { return max(min(256<<10, (256<<20)/workers), 16<<10) }

func newWorker(run *workRun, index int, seed [2]uint64) *worker {
	return &worker{index: index, workers: run.Workers, run: run, buffer: make([]byte, readBuffer(run.Workers)),
		random: rand.New(rand.NewPCG(seed[0], seed[1]))}
}

func (w *worker) now() time.Duration { return time.Since(w.run.start) }

func (w *worker) stopped() bool { return w.run.stop.Load() }

// request begins a request of the current operation.
func (w *worker) request(o *operationPlan) sample {
	r := sample{operation: o.index, begin: w.began, response: w.now()}
	if w.run.arrivals != nil {
		r.response = w.began // what it waited for a worker counts
	}
	return r
}

// note ends a request. What fails because the run is called off is nobody's failure.
func (w *worker) note(r sample, err error) {
	r.end = w.now()
	r.response = max(r.end-r.response, 0)
	if err != nil {
		if w.stopped() {
			return
		}
		r.failed = uint8(1 + failureKind(err))
		r.bytes, r.transfer = 0, 0
		w.run.tell(err)
	}
	w.last = r.end
	if w.run.window.holds(&r) {
		w.bytes += r.bytes
	}
	w.mu.Lock()
	w.samples = append(w.samples, r)
	w.mu.Unlock()
}

// take hands over the samples since the last time and takes an empty slice for the next ones.
func (w *worker) take(empty []sample) []sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.samples
	w.samples = empty[:0]
	return taken
}

// loop works until a limit of the work or until it is stopped.
func (w *worker) loop(ctx context.Context) error {
	for !w.stopped() && ctx.Err() == nil {
		if !w.next() {
			return nil
		}
		o := w.run.operations[w.run.draw[w.random.IntN(100)]]
		if err := o.act(ctx, w, o); err != nil {
			if w.stopped() {
				return nil
			}
			return err
		}
		if w.done() {
			return nil
		}
	}
	return nil
}

// next waits for when the next operation is to begin; false: there is none.
func (w *worker) next() bool {
	w.began = w.now()
	if w.run.arrivals == nil {
		return true
	}
	at, more := w.run.arrivals.take()
	if !more {
		return false
	}
	if wait := at - w.began; wait > 0 {
		if w.timer == nil {
			w.timer = time.NewTimer(wait)
		} else {
			w.timer.Reset(wait)
		}
		select {
		case <-w.timer.C:
		case <-w.run.stopping:
			return false
		}
	}
	w.began = at
	return true
}

// done says whether the worker's part of the work's limits is reached.
func (w *worker) done() bool {
	p, end := w.run, w.now()
	if w.began >= p.window.begin && end <= p.window.end {
		w.operations++
	}
	return p.window.timeout > 0 && end >= p.window.timeout ||
		p.TotalOps > 0 && w.operations >= p.TotalOps/p.Workers ||
		p.TotalBytes > 0 && w.bytes >= p.TotalBytes/int64(p.Workers)
}

// arrivals are the times at which operations are to begin, whoever does them.
type arrivals struct {
	mu       sync.Mutex
	random   *rand.Rand
	gap      float64 // mean, ns
	poisson  bool
	at       float64       // of the next, ns
	until    time.Duration // none from then on
	window   window
	measured int // of those handed out, how many lie in the window
}

func newArrivals(rate *Rate, w window, seed [2]uint64) *arrivals {
	a := &arrivals{random: rand.New(rand.NewPCG(seed[0], seed[1])), gap: 1e9 / rate.PerSecond,
		poisson: rate.Poisson, until: w.timeout, window: w}
	if a.until == 0 {
		a.until = forever
	}
	if a.poisson {
		a.at = a.random.ExpFloat64() * a.gap
	}
	return a
}

// take hands out the next time; false: no more begin.
func (a *arrivals) take() (time.Duration, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := time.Duration(min(a.at, float64(forever/2)))
	if at >= a.until {
		return 0, false
	}
	if a.poisson {
		a.at += a.random.ExpFloat64() * a.gap
	} else {
		a.at += a.gap
	}
	if at >= a.window.begin && at < a.window.end {
		a.measured++
	}
	return at, true
}

// all is how many lie in the window, those included that no worker was free for in time.
func (a *arrivals) all() int {
	for a.window.end != forever && a.at < float64(a.window.end) {
		if _, more := a.take(); !more {
			break
		}
	}
	return a.measured
}
