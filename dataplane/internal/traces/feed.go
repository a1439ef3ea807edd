package traces

const (
	blockSize   = 1 << 10
	blocksAhead = 4
)

// Feed reads a trace some blocks ahead of who takes its requests, so that reading takes none of the
// taker's time.
type Feed struct {
	blocks chan block
	spent  chan []Request // blocks to be filled again
	done   chan struct{}
	whole  []Request // the block that is being taken
	now    []Request // what is left of it
	err    error
	ended  bool
}

type block struct {
	requests []Request
	err      error // after them
}

// Feed starts to read, with repeat again and again from the first request.
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

// empty is a block to fill.
func (f *Feed) empty() []Request {
	select {
	case used := <-f.spent:
		return used[:0]
	default:
		return make([]Request, 0, blockSize)
	}
}

// pass hands a block on, and says whether anybody still wants more.
func (f *Feed) pass(b block) bool {
	select {
	case f.blocks <- b:
		return true
	case <-f.done:
		return false
	}
}

// Peek is the next request, if there is one. It waits where reading is slower than taking.
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

// Skip takes the request that Peek gave.
func (f *Feed) Skip() { f.now = f.now[1:] }

// Err is what ended the reading before the trace's end.
func (f *Feed) Err() error { return f.err }

// Close ends the reading.
func (f *Feed) Close() { close(f.done) }
