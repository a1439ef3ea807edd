package apps

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// clientProcess is a client process as its compute node sees it.
type clientProcess struct {
	number int
	task   task
	in     io.WriteCloser
	out    io.ReadCloser
	run    *exec.Cmd
	mu     sync.Mutex
}

// start starts the client processes that have ranks and sends each its task.
func (m *machine) start(program []string) error {
	for number := range m.plan.Nodes * m.plan.Processes {
		t := m.taskOf(number)
		if len(t.Ranks) == 0 {
			continue
		}
		c := &clientProcess{number: number, task: t, run: exec.Command(program[0], program[1:]...)}
		c.run.Stderr = os.Stderr
		c.run.Env = append(os.Environ(), "GOMAXPROCS=1")
		var err error
		if c.in, err = c.run.StdinPipe(); err != nil {
			return err
		}
		if c.out, err = c.run.StdoutPipe(); err != nil {
			return err
		}
		if err := c.run.Start(); err != nil {
			return fmt.Errorf("client process %d of %d cannot be started: %w", number+1, m.plan.Nodes*m.plan.Processes, err)
		}
		m.all = append(m.all, c)
		for _, r := range t.Ranks {
			if !r.Background {
				m.foreground++
			}
		}
		text, err := json.Marshal(t)
		if err != nil {
			return err
		}
		if _, err := c.in.Write(append(text, '\n')); err != nil {
			return fmt.Errorf("client process %d does not take its task: %w", number+1, err)
		}
	}
	m.times = make([]times, len(m.all))
	return nil
}

// taskOf returns a client process's task.
func (m *machine) taskOf(process int) task {
	t := task{Agents: len(m.cluster.Agents)}
	for i := range m.plan.Apps {
		a := &m.plan.Apps[i]
		rank := a.rank(&m.plan, process)
		if rank < 0 {
			continue
		}
		t.Ranks = append(t.Ranks, rankTask{App: i, Rank: rank, Ranks: a.ranks(&m.plan), Width: a.Width,
			Bursts: a.Bursts, Writes: a.Writes, Size: a.Size, Seed: m.plan.seed(i), Start: time.Duration(a.Start),
			Think: time.Duration(a.Think), Background: a.Background, Repeat: a.Repeat})
	}
	return t
}

// work lets all client processes begin and serves them to their ends.
func (m *machine) work() {
	var all sync.WaitGroup
	for i, c := range m.all {
		c.answer(results, true)
		all.Go(func() {
			told, err := m.serve(c)
			if err != nil {
				m.abort(fmt.Errorf("client process %d ended early: %w", c.number+1, err))
				return
			}
			m.mu.Lock()
			m.times[i] = told
			m.mu.Unlock()
		})
	}
	stop := context.AfterFunc(m.ctx, func() { m.abort(m.ctx.Err()) })
	defer stop()
	all.Wait()
}

// serve handles the frames of a client process until the process reports its times.
func (m *machine) serve(c *clientProcess) (times, error) {
	var head [frameSize]byte
	var all sync.WaitGroup
	defer all.Wait()
	for {
		if _, err := io.ReadFull(c.out, head[:]); err != nil {
			return times{}, err
		}
		rank, stripe := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint64(head[4:])
		data := m.buffer(int(binary.BigEndian.Uint32(head[12:])))
		if _, err := io.ReadFull(c.out, data); err != nil {
			return times{}, err
		}
		switch {
		case rank == results:
			var told times
			err := json.Unmarshal(data, &told)
			if err == nil && (len(told.Ended) != len(c.task.Ranks) || len(told.Took) != len(c.task.Ranks)) {
				err = errors.New("it told the times of other ranks")
			}
			return told, err
		case int(rank) >= len(c.task.Ranks):
			return times{}, fmt.Errorf("it has no rank %d", rank)
		case len(data) == 0:
			m.ended(c.task.Ranks[rank])
		default:
			all.Go(func() { c.answer(rank, m.write(c, c.task.Ranks[rank].App, stripe, data)) })
		}
	}
}

// answer sends an answer to a client process; a process that has gone misses the answer.
func (c *clientProcess) answer(rank uint32, good bool) {
	var b [answerSize]byte
	binary.BigEndian.PutUint32(b[:], rank)
	if good {
		b[4] = 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.in.Write(b[:])
}

func (c *clientProcess) close() {
	_ = c.in.Close()
	_ = c.out.Close()
}
