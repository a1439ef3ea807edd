package cosbench

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hotbed/dataplane/cosbench/store"
)

// sample is one completed request. Times are since the stage's start.
type sample struct {
	operation uint8
	failed    uint8         // 0: success, else 1 + the index of its kind in failureKinds
	begin     time.Duration // when its operation began; in open loop: was due
	end       time.Duration
	response  time.Duration
	transfer  time.Duration // the part of it in which the object's bytes were transferred
	bytes     int64
}

// window is the measured time, since the stage's start.
type window struct {
	begin, end time.Duration
	timeout    time.Duration // when workers stop; 0: no time limit
}

// forever is the end of an unlimited window.
const forever = time.Duration(1<<63 - 1)

func windowOf(work *Work) window {
	if work.Runtime == 0 {
		return window{0, forever, 0}
	}
	begin := time.Duration(work.Rampup) * time.Second
	end := begin + time.Duration(work.Runtime)*time.Second
	return window{begin, end, end + time.Duration(work.Rampdown)*time.Second}
}

// holds applies COSBench's rule: requests that began and ended inside the window count.
func (w window) holds(s *sample) bool {
	return s.begin >= w.begin && s.begin < w.end && s.end > w.begin && s.end <= w.end
}

// workRun is a running work.
type workRun struct {
	*workPlan
	window   window
	start    time.Time
	pool     *pool
	arrivals *arrivals // nil: closed loop
	workers  []*worker
	stop     atomic.Bool   // nothing new begins
	stopping chan struct{} // closed on stop
	warn     func(string)
	failures [8]atomic.Bool // by kind: a failure has been reported
	kept     atomic.Bool    // a container that could not be removed has been reported
}

// report warns of the first failure of each kind.
func (r *workRun) report(err error) {
	if kind := failureKind(err); !r.failures[kind].Swap(true) {
		r.warn(fmt.Sprintf("the first failure of its kind (%s): %v", failureKinds[kind], err))
	}
}

// remains reports the first container that could not be removed.
func (r *workRun) remains(container string, err error) {
	if !r.kept.Swap(true) {
		r.warn(fmt.Sprintf("container %s could not be removed, or not yet: %v", container, err))
	}
}

// worker does one operation after another on its own connection.
type worker struct {
	index, workers int // from 1 to workers
	run            *workRun
	random         *rand.Rand
	store          store.Storage
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

// readBuffer returns the size of a worker's read buffer: smaller if there are very many workers.
func readBuffer(workers int) int { return max(min(256<<10, (256<<20)/workers), 16<<10) }

func newWorker(run *workRun, index int, seed [2]uint64) *worker {
	return &worker{index: index, workers: run.Workers, run: run, buffer: make([]byte, readBuffer(run.Workers)),
		random: rand.New(rand.NewPCG(seed[0], seed[1])), timer: time.NewTimer(0)}
}

func (w *worker) now() time.Duration { return time.Since(w.run.start) }

func (w *worker) stopped() bool { return w.run.stop.Load() }

// request begins a request of the current operation.
func (w *worker) request(o *operationPlan) sample {
	r := sample{operation: o.index, begin: w.began, response: w.now()}
	if w.run.arrivals != nil {
		r.response = w.began // the wait for a worker counts
	}
	return r
}

// note ends a request. A request that fails because the run was cancelled is no failure.
func (w *worker) note(r sample, err error) {
	r.end = w.now()
	r.response = max(r.end-r.response, 0)
	if err != nil {
		if w.stopped() {
			return
		}
		r.failed = uint8(1 + failureKind(err))
		r.bytes, r.transfer = 0, 0
		w.run.report(err)
	}
	w.last = r.end
	if w.run.window.holds(&r) {
		w.bytes += r.bytes
	}
	w.mu.Lock()
	w.samples = append(w.samples, r)
	w.mu.Unlock()
}

// take returns the samples since the last call and takes an empty slice for the next ones.
func (w *worker) take(empty []sample) []sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.samples
	w.samples = empty[:0]
	return taken
}

// loop works until a limit of the work or until it is stopped.
func (w *worker) loop(ctx context.Context) error {
	for !w.stopped() && ctx.Err() == nil && w.next() {
		o := w.run.operations[w.run.draw[w.random.IntN(100)]]
		if err := o.act(ctx, w, o); err != nil && !w.stopped() {
			return err
		}
		if w.done() {
			break
		}
	}
	return nil
}

// next waits until the next operation must begin; it returns false if there is none.
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
		w.timer.Reset(wait)
		select {
		case <-w.timer.C:
		case <-w.run.stopping:
			return false
		}
	}
	w.began = at
	return true
}

// done returns true if the worker's part of the work's limits is reached.
func (w *worker) done() bool {
	p, end := w.run, w.now()
	if w.began >= p.window.begin && end <= p.window.end {
		w.operations++
	}
	return p.window.timeout > 0 && end >= p.window.timeout ||
		p.TotalOps > 0 && w.operations >= p.TotalOps/p.Workers ||
		p.TotalBytes > 0 && w.bytes >= p.TotalBytes/int64(p.Workers)
}

// arrivals are the times at which operations begin, independent of workers.
type arrivals struct {
	mu       sync.Mutex
	random   *rand.Rand
	gap      float64 // mean, ns
	poisson  bool
	at       float64       // of the next, ns
	until    time.Duration // no arrivals from then on
	window   window
	measured int // number of taken times inside the window
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

// take returns the next time, or false if there is none.
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

// all returns the number of times in the window, including those for which no worker was free.
func (a *arrivals) all() int {
	for a.window.end != forever && a.at < float64(a.window.end) {
		if _, more := a.take(); !more {
			break
		}
	}
	return a.measured
}

// action does an operation once. It records request failures in the worker; an error means that the
// worker cannot continue.
type action func(ctx context.Context, w *worker, o *operationPlan) error

var actions = map[string]action{"read": read, "write": write, "list": list, "delete": remove}

// pick draws a container and an object.
func (w *worker) pick(o *operationPlan) (container, object string) {
	if o.containers != nil {
		container = o.containers.draw(w.random, w.index, w.workers)
	}
	if o.objects != nil {
		object = o.objects.draw(w.random, w.index, w.workers)
	}
	return container, object
}

func read(ctx context.Context, w *worker, o *operationPlan) error {
	container, object := w.pick(o)
	r := w.request(o)
	body, err := w.store.Get(ctx, container, object)
	if err == nil {
		answered := w.now()
		r.bytes, err = drain(body, w.buffer, o.hashCheck)
		err = errors.Join(err, body.Close())
		r.transfer = w.now() - answered
	}
	w.note(r, err)
	return nil
}

func write(ctx context.Context, w *worker, o *operationPlan) error {
	size := o.sizes.Draw(w.random)
	container, object := w.pick(o)
	w.put(ctx, o, container, object, size)
	return nil
}

// put stores an object of a size in bytes.
func (w *worker) put(ctx context.Context, o *operationPlan, container, object string, size int64) {
	w.body.reset(w.run.pool, w.random, o, size)
	length := size
	if o.chunked {
		length = -1
	}
	r := w.request(o)
	err := w.store.Put(ctx, container, object, &w.body, length)
	r.bytes, r.transfer = w.body.at, w.body.transfer()
	w.note(r, err)
}

func list(ctx context.Context, w *worker, o *operationPlan) error {
	container, prefix := w.pick(o)
	r := w.request(o)
	n, err := w.store.List(ctx, container, prefix)
	r.bytes = n
	w.note(r, err)
	return nil
}

func remove(ctx context.Context, w *worker, o *operationPlan) error {
	container, object := w.pick(o)
	w.remove(ctx, o, container, object)
	return nil
}

func (w *worker) remove(ctx context.Context, o *operationPlan, container, object string) {
	r := w.request(o)
	w.note(r, w.store.Delete(ctx, container, object))
}

// prepare creates the containers and objects of a worker's share; init creates only containers. A
// failure to create a container ends the stage, as in COSBench.
func prepare(ctx context.Context, w *worker, o *operationPlan) error {
	var failed error
	last := ""
	o.each(w.index, w.workers, func(container, object string) bool {
		if o.createContainer && container != last {
			if failed = w.store.CreateContainer(ctx, container); failed != nil {
				failed = fmt.Errorf("container %s could not be created: %w", container, failed)
				return false
			}
			last = container
		}
		if object != "" {
			w.put(ctx, o, container, object, o.sizes.Draw(w.random))
		}
		return !w.stopped()
	})
	return failed
}

// cleanup removes the objects of a worker's share and, if requested, each container after its
// objects; dispose removes only containers. If several workers share a container, only the last
// worker finds it empty. The first container that remains is reported.
func cleanup(ctx context.Context, w *worker, o *operationPlan) error {
	last := ""
	dispose := func() {
		if o.deleteContainer && last != "" && !w.stopped() {
			if err := w.store.DeleteContainer(ctx, last); err != nil && ctx.Err() == nil {
				w.run.remains(last, err)
			}
		}
	}
	o.each(w.index, w.workers, func(container, object string) bool {
		if container != last {
			dispose()
			last = container
		}
		if object != "" {
			w.remove(ctx, o, container, object)
		}
		return !w.stopped()
	})
	dispose()
	return nil
}

// failureKinds are store.FailureKinds and a wrong checksum, which only the driver finds.
var failureKinds = append(store.FailureKinds(), "checksum")

// failureKind returns the index of an error's kind in failureKinds.
func failureKind(err error) int {
	kind := store.KindOf(err)
	if errors.Is(err, errHash) {
		kind = "checksum"
	}
	if index := slices.Index(failureKinds, kind); index >= 0 {
		return index
	}
	return len(failureKinds) - 2 // an unknown kind of a store counts as client
}

// poolSize is the size of the pool of contents, in bytes.
const poolSize = 1 << 20

// pool holds the contents of objects: made once, then only copied. An object begins anywhere in it.
type pool struct{ random, zero []byte }

func newPool(random *rand.Rand) *pool {
	p := &pool{make([]byte, poolSize), make([]byte, poolSize)}
	for i := 0; i < poolSize; i += 8 {
		binary.LittleEndian.PutUint64(p.random[i:], random.Uint64())
	}
	return p
}

// The checksum that hashCheck puts at an object's end: guard, MD5 in hex, guard.
const (
	guard   = "!!!!"
	hashLen = int64(2*md5.Size + 2*len(guard))
)

// body is an object's content while it is sent. It records when its first and last bytes were taken.
type body struct {
	source      []byte // repeated to give the content, from start
	start       int
	size, at    int64
	tail        [hashLen]byte // the end of hashed content
	tailLen     int64
	first, last time.Time
}

// reset begins a body of size bytes.
func (b *body) reset(p *pool, random *rand.Rand, o *operationPlan, size int64) {
	*b = body{source: p.random, size: size}
	if o.zero {
		b.source = p.zero
	}
	b.start = random.IntN(poolSize)
	if o.hashCheck && size > hashLen {
		b.seal()
	}
}

// seal puts a checksum of the content at its end.
func (b *body) seal() {
	sum := md5.New()
	b.tailLen = 0
	b.size -= hashLen
	for b.at < b.size {
		part := b.part()
		_, _ = sum.Write(part) // never fails
		b.at += int64(len(part))
	}
	b.at, b.size, b.tailLen = 0, b.size+hashLen, hashLen
	copy(b.tail[:], checksum(sum))
}

func checksum(sum hash.Hash) string { return guard + hex.EncodeToString(sum.Sum(nil)) + guard }

// part returns the next bytes, as far as they are in one piece.
func (b *body) part() []byte {
	if left := b.size - b.tailLen - b.at; left > 0 {
		from := int((int64(b.start) + b.at) % poolSize)
		return b.source[from : from+int(min(left, int64(poolSize-from)))]
	}
	return b.tail[hashLen-(b.size-b.at):]
}

func (b *body) took(n int) {
	b.last = time.Now()
	if b.first.IsZero() {
		b.first = b.last
	}
	b.at += int64(n)
}

// Read copies the next bytes.
func (b *body) Read(into []byte) (int, error) {
	if b.at == b.size {
		return 0, io.EOF
	}
	n := 0
	for n < len(into) && b.at+int64(n) < b.size {
		b.at += int64(n)
		copied := copy(into[n:], b.part())
		b.at -= int64(n)
		n += copied
	}
	b.took(n)
	return n, nil
}

// WriteTo sends everything without copying it first.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	from := b.at
	for b.at < b.size {
		n, err := w.Write(b.part())
		b.took(n)
		if err != nil {
			return b.at - from, err
		}
	}
	return b.at - from, nil
}

// Seek goes back, so that a request can be sent again.
func (b *body) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 || offset > b.size {
		return b.at, errors.New("a place outside of the object")
	}
	b.at = offset
	return offset, nil
}

// Len returns the bytes that are left.
func (b *body) Len() int { return int(b.size - b.at) }

// transfer returns the time from the first byte taken to the last.
func (b *body) transfer() time.Duration { return b.last.Sub(b.first) }

// errHash reports an object with content that does not match the checksum at its end.
var errHash = errors.New("the object's content does not match the checksum at its end")

// drain reads an answer to its end, through a buffer, and returns the number of bytes.
func drain(from io.Reader, buffer []byte, hashCheck bool) (int64, error) {
	if hashCheck {
		return drainChecked(from, buffer)
	}
	var n int64
	for {
		read, err := from.Read(buffer)
		n += int64(read)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// drainChecked holds back the last bytes, which may be a checksum. Objects without a checksum pass,
// as in COSBench.
func drainChecked(from io.Reader, buffer []byte) (int64, error) {
	sum := md5.New()
	var n int64
	held := 0 // bytes at the buffer's beginning that are not in the sum
	for {
		read, err := from.Read(buffer[held:])
		n += int64(read)
		held += read
		if over := held - int(hashLen); over > 0 {
			_, _ = sum.Write(buffer[:over]) // never fails
			copy(buffer, buffer[over:held])
			held = int(hashLen)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
	}
	if stored := string(buffer[:held]); n > hashLen && stored[:len(guard)] == guard && stored != checksum(sum) {
		return n, fmt.Errorf("%w (it says %s)", errHash, stored)
	}
	return n, nil
}
