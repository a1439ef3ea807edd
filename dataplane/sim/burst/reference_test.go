package burst

import (
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/twochoice"
)

// plain is the simplest form of the model, for comparison. Every message and every end of a write
// is a separate event, servers hold lists of writes, and servers receive all reports of the
// schedulers. It takes loads, homes and starts from the model.
type plain struct {
	m         *model       // the model with the bursts to repeat
	queue     []plainEvent // in order
	now       time.Duration
	servers   []plainServer
	detectors []*twochoice.Detector
	queues    *twochoice.Queues
	planners  []twochoice.Scheduler
	last      time.Duration
	total     time.Duration
	messages  Messages
}

type plainServer struct {
	waiting []plainWrite // the first is in service
	given   int64
}

type plainWrite struct {
	came    time.Duration
	besides int32
	burst   bool
	done    func(now time.Duration)
}

type plainEvent struct {
	at   time.Duration
	ends bool // end of a write: before all other events of the instant
	run  func()
}

func newPlain(t *testing.T, m *model) *plain {
	t.Helper()
	r := &plain{m: m, servers: make([]plainServer, m.p.Servers)}
	r.forget()
	if m.p.Scheduler == twochoice.Oracle {
		r.queues = twochoice.NewQueues(m.cluster)
	}
	choices := sim.NewStream(m.p.Seed, "choices")
	for range m.nodes { // one per node: it must not matter if the model shares one
		s, err := twochoice.New(m.core, m.cluster, choices, r.queues)
		must.Succeed(t, err)
		r.planners = append(r.planners, s)
	}
	return r
}

func (r *plain) forget() {
	r.detectors = nil
	for i := range r.servers {
		r.detectors = append(r.detectors, twochoice.NewDetector(r.m.core, twochoice.Server(i), 1))
	}
}

// at schedules a function behind all of its instant, or the end of a write before them.
func (r *plain) at(t time.Duration, ends bool, run func()) {
	later := sort.Search(len(r.queue), func(i int) bool {
		e := r.queue[i]
		return e.at > t || e.at == t && ends && !e.ends
	})
	r.queue = slices.Insert(r.queue, later, plainEvent{t, ends, run})
}

// serve begins the first write of a server's queue.
func (r *plain) serve(i int) {
	s := &r.servers[i]
	r.at(r.now+r.m.service, true, func() {
		w := s.waiting[0]
		s.waiting = s.waiting[1:]
		took := time.Duration(0)
		if w.burst {
			took = r.now - w.came
		}
		r.detectors[i].End(r.now, WriteBytes, took, w.besides)
		if r.queues != nil {
			r.queues.Add(twochoice.Server(i), -WriteBytes)
		}
		if w.done != nil {
			w.done(r.now)
		}
		if len(s.waiting) > 0 {
			r.serve(i)
		}
	})
}

func (r *plain) submit(i int, w plainWrite) {
	s := &r.servers[i]
	s.waiting = append(s.waiting, w)
	if len(s.waiting) == 1 {
		r.serve(i)
	}
}

// repeat reruns the model's last burst.
func (r *plain) repeat(t *testing.T) {
	m := r.m
	r.now, r.last, r.total, r.messages = m.begun, 0, 0, Messages{}
	for i := range r.servers {
		r.servers[i].given = 0
		if len(r.servers[i].waiting) > 0 {
			t.Fatal("a server still writes when the next burst begins")
		}
		load := m.servers[i].load
		r.detectors[i].Add(load, load*WriteBytes)
		if r.queues != nil {
			r.queues.Set(twochoice.Server(i), float64(load*WriteBytes))
		}
		for range load {
			r.submit(i, plainWrite{})
		}
	}
	for i := range m.nodes {
		r.at(m.nodes[i].begun, false, func() { r.node(i) })
	}
	for len(r.queue) > 0 {
		e := r.queue[0]
		r.queue = r.queue[1:]
		r.now = e.at
		e.run()
	}
}

// node simulates a compute node from its start.
func (r *plain) node(i int) {
	m, n, s := r.m, &r.m.nodes[i], r.planners[i]
	writes := m.writes[n.first : n.first+n.count]
	probes := s.Probes(writes, nil)
	readings := make([]twochoice.Reading, len(probes))
	var cached []twochoice.Reading
	left := len(probes)
	if left == 0 {
		r.decide(i, probes, nil, nil)
		return
	}
	for j, p := range probes {
		r.messages.Probes++
		r.at(r.now+m.half, false, func() {
			reading, more := r.detectors[p.Server].Probe(r.now, p.Bytes, nil)
			r.messages.Answers++
			r.at(r.now+m.half, false, func() {
				readings[j] = reading
				cached = append(cached, more...)
				if left--; left == 0 {
					r.decide(i, probes, readings, cached)
				}
			})
		})
	}
}

func (r *plain) decide(i int, probes []twochoice.Probe, readings, cached []twochoice.Reading) {
	m, n := r.m, &r.m.nodes[i]
	writes := m.writes[n.first : n.first+n.count]
	placed := r.planners[i].Place(r.now, writes, probes, readings, cached, nil)
	tickets := make([]twochoice.Ticket, len(writes))
	decisions, loads := r.planners[i].Decide(writes, probes, readings, placed, nil, nil)
	for _, one := range decisions {
		r.messages.Decisions++
		r.at(r.now+m.half, false, func() {
			d := r.detectors[one.Server]
			d.Remember(r.now, loads)
			if one.Write < 0 {
				d.Settle(r.now, one.Ticket, 0)
			} else {
				tickets[one.Write] = d.Settle(r.now, one.Ticket, WriteBytes)
			}
		})
	}
	free := r.now
	for j, p := range placed {
		free += m.link
		r.messages.Writes++
		r.at(free+m.half, false, func() { r.data(n.begun, writes[j], p.Server, tickets[j]) })
	}
}

// data delivers a write to its server.
func (r *plain) data(begun time.Duration, w twochoice.Write, target twochoice.Server, ticket twochoice.Ticket) {
	s := &r.servers[target]
	operations, _ := r.detectors[target].InFlight()
	r.detectors[target].Begin(r.now, ticket, WriteBytes)
	s.given++
	r.submit(int(target), plainWrite{r.now, int32(operations), true, func(now time.Duration) {
		r.at(now+r.m.half, false, func() {
			r.messages.Acknowledgements++
			if !r.m.p.Redirects || target == w.Home {
				r.acknowledge(begun)
				return
			}
			r.messages.Records++
			r.at(r.now+r.m.half, false, func() {
				r.messages.Records++
				r.at(r.now+r.m.half, false, func() { r.acknowledge(begun) })
			})
		})
	}})
}

func (r *plain) acknowledge(begun time.Duration) {
	r.last = r.now
	r.total += r.now - begun
}

// compare fails the test if the model and the plain model differ.
func (r *plain) compare(t *testing.T, what string) {
	t.Helper()
	m := r.m
	if m.last != r.last || m.total != r.total || m.round.Messages != r.messages {
		t.Fatalf("%s: last %v, sum %v, %+v; plainly %v, %v, %+v", what, m.last, m.total,
			m.round.Messages, r.last, r.total, r.messages)
	}
	for i := range m.servers {
		if m.servers[i].given != r.servers[i].given {
			t.Fatalf("%s: server %d was given %d, plainly %d", what, i, m.servers[i].given,
				r.servers[i].given)
		}
		got, want := m.detectors[i].Curve(), r.detectors[i].Curve()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s: server %d learned %v, plainly %v", what, i, got, want)
		}
	}
}

func TestEveryBurstIsThatOfThePlainModel(t *testing.T) {
	draws := sim.NewStream(1, "cases")
	for _, scheduler := range twochoice.Policies {
		for try := range 12 {
			p := Defaults()
			p.Scheduler, p.Seed = scheduler, draws.Uint64()
			p.Servers, p.Processes = 2+int(draws.IntN(30)), 1+int(draws.IntN(200))
			p.PerNode = 1 + int(draws.IntN(12))
			p.StragglerRatio, p.LoadMean = draws.Uniform(), 6*draws.Uniform()
			p.Service = 0.001 + float64(0.02*draws.Uniform())
			p.Redirects = draws.Bernoulli(0.5)
			if draws.Bernoulli(0.5) {
				p.Choices = twochoice.HomeRandom
			}
			switch draws.IntN(3) {
			case 0: // all at once
			case 1: // a few learn others' loads in time
				p.Spread = 0.2 * draws.Uniform()
			case 2:
				p.Spread, p.Link, p.Cache = 0.02, 0, 100
			}
			m, err := newModel(p)
			must.Succeed(t, err)
			r := newPlain(t, m)
			for round := range 4 {
				if round == 2 && draws.Bernoulli(0.3) {
					m.forget()
					r.forget()
				}
				must.Succeed(t, m.burst(sim.StreamOf(p.Seed, "burst", uint64(round))))
				r.repeat(t)
				r.compare(t, fmt.Sprintf("%s, try %d, burst %d of %+v", scheduler, try, round, p))
			}
		}
	}
}
