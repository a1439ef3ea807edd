package traces

const (
	blockSize   = 1 << 10
	blocksAhead = 4
)

// Feed reads a trace a few blocks ahead of its consumer, so that reading does not delay the
// consumer.
type Feed struct {
	blocks chan block
	spent  chan []Request // blocks to refill
	done   chan struct{}
	whole  []Request // the block being consumed
	now    []Request // the rest of it
	err    error
	ended  bool
}

type block struct {
	requests []Request
	err      error // after the requests
}

// Feed starts to read; with repeat, it restarts at the first request forever.
func (t Trace) Feed(repeat bool) *Feed {
	if t.list != nil && !repeat {
		return &Feed{now: t.list, ended: true, done: make(chan struct{})}
	}
	f := &Feed{blocks: make(chan block, blocksAhead), spent: make(chan []Request, blocksAhead+1),
		done: make(chan struct{})}
	go f.fill(t, repeat)
	return f
}

func (f *Feed) fill(t Trace, repeat bool) {
	defer close(f.blocks)
	filling := make([]Request, 0, blockSize)
	for again := true; again; again = repeat && t.Requests > 0 {
		for r, err := range t.each {
			if err != nil {
				f.pass(block{filling, err})
				return
			}
			filling = append(filling, r)
			if len(filling) < blockSize {
				continue
			}
			if !f.pass(block{filling, nil}) {
				return
			}
			filling = f.empty()
		}
	}
	f.pass(block{filling, nil})
}

// empty returns a block to fill.
func (f *Feed) empty() []Request {
	select {
	case used := <-f.spent:
		return used[:0]
	default:
		return make([]Request, 0, blockSize)
	}
}

// pass delivers a block and returns true if the consumer still wants more.
func (f *Feed) pass(b block) bool {
	select {
	case f.blocks <- b:
		return true
	case <-f.done:
		return false
	}
}

// Peek returns the next request, if there is one. It waits if reading is slower than consuming.
func (f *Feed) Peek() (Request, bool) {
	for len(f.now) == 0 {
		if f.ended || f.err != nil {
			return Request{}, false
		}
		if f.whole != nil {
			select {
			case f.spent <- f.whole:
			default:
			}
		}
		b, more := <-f.blocks
		f.whole, f.now, f.err, f.ended = b.requests, b.requests, b.err, !more
	}
	return f.now[0], true
}

// Skip consumes the request that Peek returned.
func (f *Feed) Skip() { f.now = f.now[1:] }

// Err returns the error that ended reading before the trace's end.
func (f *Feed) Err() error { return f.err }

// Close ends the reading.
func (f *Feed) Close() { close(f.done) }
