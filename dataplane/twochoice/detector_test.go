package twochoice

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

func newDetector(t *testing.T, p Parameters) *Detector {
	t.Helper()
	must.Succeed(t, p.Validate())
	return NewDetector(p, 3, 1)
}

func TestPreassignmentIsTheExpectationUntilItIsDecided(t *testing.T) { // III.C
	p := Simulated(Preassign)
	p.Preassign.Unit, p.Preassign.Prior = 100, 0.25
	d := newDetector(t, p)
	d.Add(2, 1000)
	first, _ := d.Probe(0, 400, nil)
	if first.Load != 1000 || first.InFlight != 2 || d.Load() != 1000+0.25*400 {
		t.Fatalf("reported %v, and then the load is %g", first, d.Load())
	}
	second, _ := d.Probe(0, 400, nil)
	if second.Load != 1100 || d.Load() != 1200 || second.Ticket == first.Ticket {
		t.Fatalf("reported %v, and then the load is %g", second, d.Load())
	}
	d.Settle(0, first.Ticket, 0)
	d.Settle(0, first.Ticket, 400) // repeated
	d.Settle(0, 1<<40, 0)          // of a former life
	if d.Load() != 1100 {
		t.Fatalf("after a no the load is %g", d.Load())
	}
	d.Settle(0, second.Ticket, 400)
	if d.Load() != 1400 {
		t.Fatalf("after a yes the load is %g", d.Load())
	}
	d.Begin(0, second.Ticket, 400)
	d.Begin(0, 0, 50) // without a probe
	if operations, bytes := d.InFlight(); d.Load() != 1450 || operations != 4 || bytes != 1450 {
		t.Fatalf("when the data is there the load is %g", d.Load())
	}
	d.End(0, 400, 0, 0)
	d.End(0, 50, 0, 0)
	if d.Load() != 1000 {
		t.Fatalf("at the end the load is %g", d.Load())
	}
}

func TestWhatIsExpectedIsTheSumOfWhatIsOpen(t *testing.T) {
	type open struct {
		ticket Ticket
		amount float64
		until  time.Duration
		yes    bool
	}
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 3))
		p := Simulated(Both)
		p.Preassign.Unit = 1000
		p.Metric = []Metric{Bytes, Operations}[seed%2]
		d := newDetector(t, p)
		lifetime := time.Duration(p.Preassign.Lifetime)
		now := time.Duration(0)
		var all []open
		var inFlight []int64
		for range 400 {
			now += time.Duration(random.IntN(int(lifetime / 8)))
			full := float64(1000)
			if p.Metric == Operations {
				full = 1
			}
			switch n := random.IntN(10); {
			case n < 4:
				d.advance(now)
				before := d.Load()
				r, _ := d.Probe(now, 1000, nil)
				all = append(all, open{r.Ticket, d.Load() - before, now + lifetime, false})
				if r.Load != before {
					t.Fatalf("reported %g of %g", r.Load, before)
				}
			case n < 8 && len(all) > 0:
				i := random.IntN(len(all))
				one := &all[i]
				if n == 4 {
					d.Begin(now, one.ticket, 1000)
					inFlight = append(inFlight, 1000)
					all = slices.Delete(all, i, i+1)
				} else if yes := n == 5; !one.yes && one.until > now {
					d.Settle(now, one.ticket, map[bool]int64{true: 1000}[yes])
					if one.yes, one.amount, one.until = yes, full, now+lifetime; !yes {
						all = slices.Delete(all, i, i+1)
					}
				}
			case len(inFlight) > 0:
				d.End(now, inFlight[0], time.Millisecond, 1)
				inFlight = inFlight[1:]
			}
			d.advance(now)
			// An old reservation expires at the latest together with those probed before it.
			least, most := 0.0, 0.0
			for _, one := range all {
				if most += one.amount; one.until > now {
					least += one.amount
				}
			}
			actual := float64(len(inFlight)) * full
			if got := d.Load() - actual; got < least-1e-6 || got > most+1e-6 {
				t.Fatalf("seed %d: %g is expected, and open is %g to %g", seed, got, least, most)
			}
		}
		now += 3 * lifetime
		d.advance(now)
		if d.count != 0 || d.expected != 0 || d.Load() != float64(d.actual()) {
			t.Fatalf("seed %d: long after %g is expected still", seed, d.expected)
		}
	}
}

func TestLoadsOfOthersAreKeptForALifetime(t *testing.T) { // III.B
	p := Simulated(Collaborative)
	p.CacheSize = 3
	d := newDetector(t, p)
	passed := func(now time.Duration) []Server {
		_, cached := d.Probe(now, 1, nil)
		var out []Server
		for _, c := range cached {
			if c.Ticket != 0 || !c.Answered {
				t.Fatalf("passed on is %v", c)
			}
			out = append(out, c.Server)
		}
		return out
	}
	for _, server := range []Server{3, 1, 2, 4, 1} { // 3 is itself
		d.Remember(0, []Reading{{Server: server, Answered: true, Load: 5, Ticket: 9}, {Server: 8}})
	}
	if got := passed(0); !slices.Equal(got, []Server{2, 4, 1}) {
		t.Fatalf("passed on are %v", got)
	}
	d.Remember(time.Millisecond, []Reading{{Server: 7, Answered: true}})
	if got := passed(200 * time.Millisecond); !slices.Equal(got, []Server{4, 1, 7}) {
		t.Fatalf("the oldest did not make room: %v", got)
	}
	if got := passed(201 * time.Millisecond); !slices.Equal(got, []Server{7}) {
		t.Fatalf("after their lifetime there are %v", got)
	}
	plain := newDetector(t, Simulated(TwoChoice))
	plain.Remember(0, []Reading{{Server: 1, Answered: true}})
	if _, cached := plain.Probe(0, 1, nil); len(cached) != 0 {
		t.Fatal("plain two-choice shares loads")
	}
}

func TestPOfLoadIsTheShareThatWasChosen(t *testing.T) {
	p := Simulated(Preassign).Preassign
	p.Unit, p.Weight = 10, 0
	a := acceptance{p: p}
	for i := range 100 {
		a.learn(a.bin(25), i < 30)
	}
	for load, want := range map[float64]float64{25: 0.3, 29.9: 0.3, 30: 0.5, 1e300: 0.5, -1: 0.5, math.Inf(-1): 0.5} {
		if got := a.at(a.bin(load)); got != want {
			t.Errorf("P(%g) is %g", load, got)
		}
	}
	for range 3 * fading { // it follows a cluster that changes
		a.learn(2, true)
	}
	if a.at(2) < 0.99 || a.seen[2] >= fading {
		t.Fatalf("P is %g of %d", a.at(2), a.seen[2])
	}
}

func TestExpectedLatencyIsThatOfAsManyInFlight(t *testing.T) {
	d := newDetector(t, Simulated(Prequal))
	if r, _ := d.Probe(0, 1, nil); r.Latency != 0 {
		t.Fatalf("a latency of %v out of nothing", r.Latency)
	}
	for i := range 20 {
		for level, took := range map[int32]time.Duration{1: time.Millisecond, 5: 7 * time.Millisecond} {
			d.Begin(0, 0, 1)
			d.End(0, 1, took+time.Duration(i%3), level)
		}
	}
	for inFlight, want := range []time.Duration{1, 1, 1, 1, 7, 7, 7} {
		r, _ := d.Probe(0, 1, nil)
		if got := r.Latency.Round(time.Millisecond); got != want*time.Millisecond {
			t.Errorf("with %d in flight it expects %v", inFlight, got)
		}
		d.Begin(0, 0, 1)
	}
}

func TestParametersAreChecked(t *testing.T) {
	p := Defaults(Both)
	if err := json.Unmarshal([]byte(`{"min_write":4096,"cache_lifetime":"1s"}`), &p); err != nil || p.Validate() != nil ||
		p.MinWrite != 4096 || time.Duration(p.CacheLifetime) != time.Second || p.Prequal.Pool != 16 {
		t.Fatalf("read are %+v, %v", p, err)
	}
	if text, err := json.Marshal(p); err != nil || !strings.Contains(string(text), `"cache_lifetime":1`) {
		t.Fatalf("written are %s, %v", text, err)
	}
	for _, bad := range []string{`{"scheduler":"best"}`, `{"choices":"any"}`, `{"metric":"iops"}`,
		`{"min_write":-1}`, `{"cache_lifetime":-1}`, `{"cache_size":5000}`, `{"preassign":{"unit":0}}`,
		`{"preassign":{"prior":2}}`, `{"preassign":{"weight":-1}}`, `{"preassign":{"lifetime":0}}`,
		`{"prequal":{"probes":0}}`, `{"prequal":{"pool":0}}`, `{"prequal":{"age":0}}`,
		`{"prequal":{"quantile":1.5}}`} {
		p := Defaults(Both)
		if err := json.Unmarshal([]byte(bad), &p); err != nil || p.Validate() == nil {
			t.Errorf("%s is taken: %v", bad, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"cache_lifetime":"soon"}`), &p); err == nil {
		t.Error("a time that is none is taken")
	}
	if _, err := New(Defaults(Both), 0, rand.NewPCG(1, 1), nil); err == nil {
		t.Error("a cluster without servers is taken")
	}
	if (Parameters{Scheduler: "best"}).Validate() == nil {
		t.Error("an unknown scheduler is taken")
	}
}
