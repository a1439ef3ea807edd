package apps

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"hotbed/dataplane/internal/burst"
)

// task is what a client process is told to do: its ranks, one of each application on its node.
type task struct {
	Agents int        `json:"agents"`
	Ranks  []rankTask `json:"ranks"`
}

// rankTask is one rank of an application, see Application. Times are in nanoseconds.
type rankTask struct {
	App, Rank, Ranks, Width, Bursts, Writes, Size int
	Seed                                          uint64
	Start, Think                                  time.Duration
	Background, Repeat                            bool
}

// A frame from a client process: the rank's place in its task, the stripe, the length, then the bytes.
// One without bytes says that the rank has ended; one of rank `results` brings its times as JSON.
// The answer is the rank's place and 1 when the write was acknowledged, else 0; rank `results` begins
// (1) or ends (0) all of them.
const (
	frameSize  = 16
	answerSize = 5
	results    = math.MaxUint32
)

// times are what a client process saw, by rank in its task.
type times struct {
	Ended []time.Duration   `json:"ended"` // after the beginning
	Took  [][]time.Duration `json:"took"`  // writes that were acknowledged
}

// Process is a client process: it is told its task on `in`, waits there until it may begin, and then
// writes bytes of its own to `out`, where its node's scheduler takes them.
func Process(in io.Reader, out io.Writer) error {
	reader := bufio.NewReader(in)
	line, err := reader.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("a client process is told its task on standard input: %w", err)
	}
	var t task
	if err := json.Unmarshal(line, &t); err != nil {
		return fmt.Errorf("the task cannot be read: %w", err)
	}
	p := &process{task: t, out: out, ended: make(chan struct{}), answers: make([]chan bool, len(t.Ranks))}
	largest := 0
	for i, r := range t.Ranks {
		p.answers[i] = make(chan bool, 1)
		largest = max(largest, r.Size)
	}
	p.buffer = make([]byte, frameSize+largest)
	if rank, good, err := readAnswer(reader); err != nil || rank != results || !good {
		return errors.Join(err, errors.New("nobody said that the client process may begin"))
	}
	p.start = time.Now()
	go p.listen(reader)
	return p.run()
}

type process struct {
	task
	start   time.Time
	answers []chan bool // by rank
	ended   chan struct{}

	mu     sync.Mutex
	out    io.Writer
	buffer []byte // a frame: what is written is in the process's memory
}

func readAnswer(in io.Reader) (rank uint32, good bool, err error) {
	var b [answerSize]byte
	_, err = io.ReadFull(in, b[:])
	return binary.BigEndian.Uint32(b[:]), b[4] == 1, err
}

// listen hands answers to ranks, and tells the background to end. When nobody answers any more, what
// is on its way has failed.
func (p *process) listen(in io.Reader) {
	for {
		rank, good, err := readAnswer(in)
		switch {
		case err != nil:
			for _, answers := range p.answers {
				close(answers)
			}
			return
		case rank == results:
			close(p.ended)
		case int(rank) < len(p.answers):
			p.answers[rank] <- good
		}
	}
}

func (p *process) run() error {
	told := times{Ended: make([]time.Duration, len(p.Ranks)), Took: make([][]time.Duration, len(p.Ranks))}
	errs := make([]error, len(p.Ranks))
	var all sync.WaitGroup
	for i := range p.Ranks {
		all.Go(func() {
			told.Took[i], errs[i] = p.rank(i)
			told.Ended[i] = time.Since(p.start)
			errs[i] = errors.Join(errs[i], p.send(i, 0, 0))
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	text, err := json.Marshal(told)
	if err != nil {
		return err
	}
	var head [frameSize]byte
	binary.BigEndian.PutUint32(head[:], results)
	binary.BigEndian.PutUint32(head[12:], uint32(len(text)))
	_, err = p.out.Write(append(head[:], text...))
	return err
}

// rank writes the bursts of one rank; it ends early where a write failed.
func (p *process) rank(i int) ([]time.Duration, error) {
	r := p.Ranks[i]
	var took []time.Duration
	if !p.pause(r.Start, r.Background) {
		return nil, nil
	}
	n := 0
	for b := 0; r.Repeat || b < r.Bursts; b++ {
		if b > 0 && !p.pause(r.Think, r.Background) {
			return took, nil
		}
		for range r.Writes {
			if r.Background && p.over() {
				return took, nil
			}
			began := time.Now()
			if err := p.send(i, stripe(n, r.Rank, r.Ranks, r.Width, p.Agents), r.Size); err != nil {
				return took, err
			}
			if !<-p.answers[i] {
				return took, nil
			}
			took = append(took, time.Since(began))
			n++
		}
	}
	return took, nil
}

// pause waits; false when what is in the background is to end.
func (p *process) pause(d time.Duration, background bool) bool {
	if d <= 0 {
		return true
	}
	if !background {
		time.Sleep(d)
		return true
	}
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-late.C:
		return true
	case <-p.ended:
		return false
	}
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// send sends a frame; the bytes are made in the process's own memory.
func (p *process) send(i int, stripe uint64, size int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	frame := p.buffer[:frameSize+size]
	binary.BigEndian.PutUint32(frame, uint32(i))
	binary.BigEndian.PutUint64(frame[4:], stripe)
	binary.BigEndian.PutUint32(frame[12:], uint32(size))
	if size > 0 {
		burst.Fill(frame[frameSize:], p.Ranks[i].Seed, stripe)
	}
	_, err := p.out.Write(frame)
	return err
}
