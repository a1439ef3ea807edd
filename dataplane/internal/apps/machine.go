package apps

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"hotbed/dataplane/internal/burst"
	"hotbed/dataplane/internal/librados"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

// leaving is how long client processes may take to end after the last request; a test shortens it.
var leaving = 10 * time.Second

// written is an acknowledged write.
type written struct {
	app    int
	stripe uint64
	target protocol.Node
}

// machine is one machine with all compute nodes. Their schedulers run in this process; each client
// process is a separate process, connected by a pair of pipes.
type machine struct {
	ctx     context.Context
	cluster server.Cluster
	plan    Plan
	clients []map[twochoice.Policy]*server.Client // by compute node
	pools   pools
	all     []*clientProcess

	mu         sync.Mutex
	done       []written
	failed     []int // by application
	errs       []error
	foreground int // ranks that have not ended
	free       map[int][][]byte
	times      []times // by client process
	aborted    error
}

// Run executes a plan with client processes of `program`, which must call `Process`. The error is a
// failure to complete the plan; failed writes are in the report.
func Run(ctx context.Context, c server.Cluster, p Plan, program ...string) (Report, error) {
	return runOn(ctx, c, p, openRados, program...)
}

// runOn is Run with the given kind of pools.
func runOn(ctx context.Context, c server.Cluster, p Plan, open openPool, program ...string) (Report, error) {
	if err := p.complete(len(c.Agents)); err != nil {
		return Report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Patience))
	defer cancel()
	m := &machine{ctx: ctx, cluster: c, plan: p, failed: make([]int, len(p.Apps)), free: map[int][][]byte{},
		pools: pools{open: open, patience: time.Duration(c.Patience), there: map[place]pool{}}}
	defer m.close()
	if err := m.connect(); err != nil {
		return Report{}, err
	}
	if err := m.start(program); err != nil {
		return Report{}, err
	}
	began := time.Now()
	m.work()
	r := m.report(began, time.Since(began))
	if err := ctx.Err(); err != nil {
		return r, fmt.Errorf("the applications did not end in time: %w", err)
	}
	if err := m.whyAborted(); err != nil {
		return r, err
	}
	if p.Verify || p.VerifyAll {
		m.rest()
		var err error
		if r.Verified, err = m.verify(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// policy returns an application's scheduler.
func (m *machine) policy(app int) twochoice.Policy {
	if m.plan.Apps[app].Pool != "" {
		return crush
	}
	if own := m.plan.Apps[app].Scheduler; own != "" {
		return own
	}
	return m.cluster.Scheduler.Scheduler
}

// connect makes each compute node's clients, one per scheduler of its applications. If one
// scheduler is the oracle, all clients report their writes to it.
func (m *machine) connect() error {
	connect := server.Connect
	for app := range m.plan.Apps {
		if m.policy(app) == twochoice.Oracle {
			connect = server.NewOracle(len(m.cluster.Agents)).Connect
			break
		}
	}
	m.clients = make([]map[twochoice.Policy]*server.Client, m.plan.Nodes)
	for node := range m.clients {
		m.clients[node] = map[twochoice.Policy]*server.Client{}
		for app := range m.plan.Apps {
			policy := m.policy(app)
			if m.clients[node][policy] != nil || m.plan.Apps[app].rank(&m.plan, node*m.plan.Processes) < 0 {
				continue
			}
			if policy == crush {
				if err := m.pools.connect(m.plan.Ceph, place{node, m.plan.Apps[app].Pool}); err != nil {
					return err
				}
				continue
			}
			c := m.cluster
			c.Scheduler.Scheduler = policy
			client, err := connect(c)
			if err != nil {
				return err
			}
			client.TimeSteps()
			m.clients[node][policy] = client
		}
	}
	var all []*server.Client
	for _, clients := range m.clients {
		all = slices.AppendSeq(all, maps.Values(clients))
	}
	return burst.Connect(m.ctx, all)
}

// abort ends all client processes, because the plan cannot be completed.
func (m *machine) abort(err error) {
	m.mu.Lock()
	first := m.aborted == nil
	if first {
		m.aborted = err
	}
	m.mu.Unlock()
	if !first {
		return
	}
	for _, c := range m.all {
		c.close()
	}
}

func (m *machine) whyAborted() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.aborted
}

// write executes a client process's write with its compute node's scheduler.
func (m *machine) write(c *clientProcess, app int, stripe uint64, data []byte) bool {
	target, err := m.put(c.number/m.plan.Processes, app, stripe, data)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		// The bytes may still be in flight, so the buffer is not reused.
		m.failed[app]++
		m.errs = append(m.errs, err)
		return false
	}
	m.done = append(m.done, written{app, stripe, target})
	m.free[len(data)] = append(m.free[len(data)], data)
	return true
}

// put writes an object and returns the server that stores it, or 0 for a pool's object.
func (m *machine) put(node, app int, stripe uint64, data []byte) (protocol.Node, error) {
	name, pool := m.plan.Apps[app].object(stripe), m.plan.Apps[app].Pool
	if pool != "" {
		return 0, m.pools.there[place{node, pool}].WriteFull(name, data)
	}
	w, err := m.clients[node][m.policy(app)].Write(m.ctx, name, 0, data)
	return w.Target, err
}

// buffer returns memory for a write, reused because tens of thousands would burden the collector.
func (m *machine) buffer(size int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	free := m.free[size]
	if size == 0 || len(free) == 0 {
		return make([]byte, size)
	}
	m.free[size] = free[:len(free)-1]
	return free[len(free)-1]
}

// ended records that a rank ended; after the last foreground rank, the background ends.
func (m *machine) ended(r rankTask) {
	m.mu.Lock()
	last := false
	if !r.Background {
		m.foreground--
		last = m.foreground == 0
	}
	m.mu.Unlock()
	if !last {
		return
	}
	for _, c := range m.all {
		c.answer(results, false)
	}
}

// close ends client processes and clients.
func (m *machine) close() {
	for _, c := range m.all {
		c.close()
	}
	for _, c := range m.all {
		late := time.AfterFunc(leaving, func() { _ = c.run.Process.Kill() })
		_ = c.run.Wait() // the process has reported its times, or failed already
		late.Stop()
	}
	m.rest()
}

// rest frees what only writers need, before reads allocate more. Connections of all compute nodes
// and buffers of all writes in flight may take gigabytes.
func (m *machine) rest() {
	for _, clients := range m.clients {
		for _, client := range clients {
			client.Close()
		}
	}
	m.pools.close()
	m.clients, m.pools.there = nil, nil
	m.mu.Lock()
	m.free = map[int][][]byte{}
	m.mu.Unlock()
	debug.FreeOSMemory()
}

// fill regenerates the bytes of a write.
func (m *machine) fill(w written) []byte {
	data := make([]byte, m.plan.Apps[w.app].Size)
	burst.Fill(data, m.plan.seed(w.app), w.stripe)
	return data
}

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
			reported, err := m.serve(c)
			if err != nil {
				m.abort(fmt.Errorf("client process %d ended early: %w", c.number+1, err))
				return
			}
			m.mu.Lock()
			m.times[i] = reported
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
			var reported times
			err := json.Unmarshal(data, &reported)
			if err == nil && (len(reported.Ended) != len(c.task.Ranks) || len(reported.Took) != len(c.task.Ranks)) {
				err = errors.New("it reported the times of other ranks")
			}
			return reported, err
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

// crush stands for the scheduler of an application that writes to a pool directly.
const crush twochoice.Policy = "crush"

// pool is a pool in which CRUSH places objects; see librados.Pool.
type pool interface {
	WriteFull(name string, parts ...[]byte) error
	Read(name string, b []byte, offset uint64) (int, error)
	Close() error
}

// openPool connects to a pool of a Ceph cluster; an operation fails if it exceeds `patience`.
type openPool func(ceph Ceph, name string, patience time.Duration) (pool, error)

func openRados(ceph Ceph, name string, patience time.Duration) (pool, error) {
	p, err := librados.Open(librados.Config{Conf: ceph.Conf, Keyring: ceph.Keyring, User: ceph.User, Pool: name,
		Patience: burst.Connecting, OSDPatience: max(patience, time.Second)})
	if err != nil {
		return nil, err // a plain nil, not an interface that holds a nil pointer
	}
	return p, nil
}

// place is a compute node's pool: each node has its own connection.
type place struct {
	node int
	pool string
}

// pools are the connections, made before the first write.
type pools struct {
	open     openPool
	patience time.Duration
	there    map[place]pool
}

// connect opens a pool unless it is open.
func (p *pools) connect(ceph *Ceph, at place) error {
	if p.there[at] != nil {
		return nil
	}
	found, err := p.open(*ceph, at.pool, p.patience)
	if err != nil {
		return err
	}
	p.there[at] = found
	return nil
}

func (p *pools) close() {
	for _, one := range p.there {
		_ = one.Close() // all writes were acknowledged or are reported as failed
	}
}

// readWhole reads an object and returns an error unless its length is exactly size bytes.
func readWhole(p pool, name string, size int) ([]byte, error) {
	data := make([]byte, size+1)
	n, err := p.Read(name, data, 0)
	if err == nil && n != size {
		err = fmt.Errorf("it has %d bytes", n)
		if n > size {
			err = fmt.Errorf("it has more than the %d bytes that were written", size)
		}
	}
	return data[:size], err
}
