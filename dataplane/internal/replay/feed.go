package replay

const (
	blockSize   = 1 << 12
	blocksAhead = 4
)

// feed reads a trace some blocks ahead of who sends it, so that reading takes none of the sender's
// time.
type feed struct {
	blocks chan block
	done   chan struct{}
	now    []Request
	err    error
	ended  bool
}

type block struct {
	requests []Request
	err      error // after them
}

// feed starts to read, with repeat again and again from the first request.
func (t Trace) feed(repeat bool) *feed {
	f := &feed{blocks: make(chan block, blocksAhead), done: make(chan struct{})}
	go f.fill(t, repeat)
	return f
}

func (f *feed) fill(t Trace, repeat bool) {
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
			filling = make([]Request, 0, blockSize)
		}
	}
	f.pass(block{filling, nil})
}

// pass hands a block on, and says whether anybody still wants more.
func (f *feed) pass(b block) bool {
	select {
	case f.blocks <- b:
		return true
	case <-f.done:
		return false
	}
}

// peek is the next request, if there is one. It waits where reading is slower than sending.
func (f *feed) peek() (Request, bool) {
	for len(f.now) == 0 {
		if f.ended || f.err != nil {
			return Request{}, false
		}
		b, more := <-f.blocks
		f.now, f.err, f.ended = b.requests, b.err, !more
	}
	return f.now[0], true
}

// skip takes the request that peek gave.
func (f *feed) skip() { f.now = f.now[1:] }

// close ends the reading.
func (f *feed) close() { close(f.done) }
