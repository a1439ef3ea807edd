package twochoice

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var inf = math.Inf(1)

func newDetector(t *testing.T, p Parameters) *Detector {
	t.Helper()
	d, err := NewDetector(p, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPreassignmentIsTheExpectationUntilItIsDecided(t *testing.T) { // III.C
	p := Simulated(Preassign)
	p.Preassign.Unit, p.Preassign.Prior = 100, 0.25
	d := newDetector(t, p)
	d.Add(2, 1000)
	first, _ := d.Probe(0, 400, nil)
	if first.Load != 1000 || first.InFlight != 2 || d.Load() != 1000+0.25*400 {
		t.Fatalf("told %v, and then the load is %g", first, d.Load())
	}
	second, _ := d.Probe(0, 400, nil)
	if second.Load != 1100 || d.Load() != 1200 || second.Ticket == first.Ticket {
		t.Fatalf("told %v, and then the load is %g", second, d.Load())
	}
	d.Settle(0, first.Ticket, false)
	d.Settle(0, first.Ticket, true) // repeated
	if d.Load() != 1100 {
		t.Fatalf("after a no the load is %g", d.Load())
	}
	d.Settle(0, second.Ticket, true)
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
	if s := d.Stats(); s.Probes != 2 || s.Chosen != 1 || s.Declined != 1 || s.Expired != 0 {
		t.Fatalf("counts are %+v", s)
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
					t.Fatalf("told %g of %g", r.Load, before)
				}
			case n < 8 && len(all) > 0:
				i := random.IntN(len(all))
				one := &all[i]
				if n == 4 {
					d.Begin(now, one.ticket, 1000)
					inFlight = append(inFlight, 1000)
					all = slices.Delete(all, i, i+1)
				} else if yes := n == 5; !one.yes && one.until > now {
					d.Settle(now, one.ticket, yes)
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

func TestLoadsOfOthersAreToldForALifetime(t *testing.T) { // III.B
	p := Simulated(Collaborative)
	p.CacheSize = 3
	d := newDetector(t, p)
	told := func(now time.Duration) []Server {
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
		d.Tell(0, []Reading{{Server: server, Answered: true, Load: 5, Ticket: 9}, {Server: 8}})
	}
	if got := told(0); !slices.Equal(got, []Server{2, 4, 1}) {
		t.Fatalf("told are %v", got)
	}
	d.Tell(time.Millisecond, []Reading{{Server: 7, Answered: true}})
	if got := told(200 * time.Millisecond); !slices.Equal(got, []Server{4, 1, 7}) {
		t.Fatalf("the oldest did not make room: %v", got)
	}
	if got := told(201 * time.Millisecond); !slices.Equal(got, []Server{7}) {
		t.Fatalf("after their lifetime told are %v", got)
	}
	plain := newDetector(t, Simulated(TwoChoice))
	plain.Tell(0, []Reading{{Server: 1, Answered: true}})
	if _, cached := plain.Probe(0, 1, nil); len(cached) != 0 {
		t.Fatal("plain two-choice shares loads")
	}
}

func TestATicketOfAFormerLifeNamesNothing(t *testing.T) {
	p := Simulated(Preassign)
	old := newDetector(t, p)
	r, _ := old.Probe(0, 100, nil)
	d := newDetector(t, p)
	d.FirstTicket(1 << 40)
	d.Probe(0, 100, nil)
	load := d.Load()
	d.Settle(0, r.Ticket, false)
	if d.Load() != load {
		t.Fatal("a ticket of the server's former life took effect")
	}
}

func TestPOfLoadIsTheShareThatWasChosen(t *testing.T) {
	p := Simulated(Preassign).Preassign
	p.Unit, p.Weight = 10, 0
	a := NewAcceptance(p)
	for i := range 100 {
		a.learn(a.bin(25), i < 30)
	}
	if a.P(25) != 0.3 || a.P(29.9) != 0.3 || a.P(30) != 0.5 || a.P(1e300) != 0.5 || a.P(-1) != 0.5 ||
		a.P(math.NaN()) != 0.5 {
		t.Fatalf("P is %g, %g", a.P(25), a.P(30))
	}
	a.Freeze(true)
	a.learn(a.bin(25), true)
	if a.P(25) != 0.3 || !a.Frozen() {
		t.Fatal("it learned while it was frozen")
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var again Acceptance
	if err := json.Unmarshal(text, &again); err != nil || again.P(25) != 0.3 || !again.Frozen() {
		t.Fatalf("read again P is %g (%v)", again.P(25), err)
	}
	if c := again.Curve(); len(c) != 1 || c[0] != (AcceptancePoint{20, 100, 30, 0.3}) {
		t.Fatalf("the curve is %v", c)
	}
	for _, bad := range []string{`{"version":2}`, `{"version":1,"unit":1,"told":[1],"chosen":[2]}`, `[]`,
		`{"version":1,"unit":0}`, `{"version":1,"unit":1,"prior":2}`} {
		if err := json.Unmarshal([]byte(bad), &again); err == nil || again.P(25) != 0.3 {
			t.Errorf("%s is taken: %v", bad, err)
		}
	}
	clone := a.Clone()
	clone.Freeze(false)
	for range 3 * fading {
		clone.learn(2, true)
	}
	if clone.P(25) < 0.99 || clone.told[2] >= fading || a.P(25) != 0.3 {
		t.Fatalf("a copy has learned P = %g of %d", clone.P(25), clone.told[2])
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
	p, err := ParseParameters([]byte(`{"scheduler":"preassign","min_write":4096,"cache_lifetime":"1s"}`))
	if err != nil || p.Scheduler != Preassign || p.MinWrite != 4096 || p.Choices != HomeRandom ||
		time.Duration(p.CacheLifetime) != time.Second || p.Prequal.Pool != 16 {
		t.Fatalf("read are %+v, %v", p, err)
	}
	if text, err := json.Marshal(p); err != nil || !strings.Contains(string(text), `"cache_lifetime":1`) {
		t.Fatalf("written are %s, %v", text, err)
	}
	for text, unit := range map[string]float64{`{}`: 1 << 20, `{"metric":"operations"}`: 1,
		`{"metric":"operations","preassign":{"unit":4}}`: 4, `{"preassign":{"prior":0}}`: 1 << 20} {
		if p, err := ParseParameters([]byte(text)); err != nil || p.Preassign.Unit != unit {
			t.Errorf("%s has the unit %g (%v)", text, p.Preassign.Unit, err)
		}
	}
	for _, bad := range []string{`{"scheduler":"best"}`, `{"choices":"any"}`, `{"metric":"iops"}`,
		`{"min_write":-1}`, `{"cache_lifetime":-1}`, `{"cache_size":5000}`, `{"preassign":{"unit":0}}`,
		`{"preassign":{"prior":2}}`, `{"preassign":{"weight":-1}}`, `{"preassign":{"lifetime":0}}`,
		`{"prequal":{"probes":0}}`, `{"prequal":{"pool":0}}`, `{"prequal":{"age":0}}`,
		`{"prequal":{"quantile":1.5}}`} {
		var parameter *ParameterError
		if _, err := ParseParameters([]byte(bad)); !errors.As(err, &parameter) {
			t.Errorf("%s is taken: %v", bad, err)
		}
	}
	for _, bad := range []string{``, `{"sheduler":"both"}`, `{} {}`, `{"cache_lifetime":"soon"}`} {
		if _, err := ParseParameters([]byte(bad)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s is taken: %v", bad, err)
		}
	}
	if _, err := New(Defaults(Both), Numbered(0), rand.NewPCG(1, 1), nil); err == nil {
		t.Error("a cluster without servers is taken")
	}
	if _, err := NewDetector(Parameters{Scheduler: "best"}, 0, nil); err == nil {
		t.Error("a detector with bad parameters is taken")
	}
}

func TestServersAreDrawnEvenlyAmongThoseThatAreUp(t *testing.T) {
	servers, err := NewServers([]Server{5, 2, 9, 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := servers.SetUp(2, false); err != nil {
		t.Fatal(err)
	}
	random := rand.NewPCG(1, 1)
	seen := map[Server]int{}
	for range 3000 {
		seen[servers.Draw(random)]++
		if other := servers.DrawOther(random, 9); other == 9 || !servers.Up(other) {
			t.Fatalf("other than 9 is %d", other)
		}
	}
	for _, s := range []Server{5, 9, 4} {
		if seen[s] < 850 || seen[s] > 1150 {
			t.Fatalf("drawn are %v", seen)
		}
	}
	if servers.Stripe(1, 0) != 2 || servers.Stripe(3, 2) != 2 || servers.Len() != 4 || servers.UpLen() != 3 {
		t.Fatal("stripes do not go round")
	}
	var unknownServer *UnknownServerError
	var twice *TwiceError
	if err := servers.SetUp(3, true); !errors.As(err, &unknownServer) {
		t.Errorf("server 3 comes up: %v", err)
	}
	if _, err := NewServers([]Server{1, 1}); !errors.As(err, &twice) {
		t.Errorf("a server is there twice: %v", err)
	}
	if _, err := NewServers([]Server{-4}); !errors.As(err, &unknownServer) {
		t.Errorf("a server is negative: %v", err)
	}
	for _, s := range []Server{5, 9, 4} {
		_ = servers.SetUp(s, false)
	}
	if servers.Draw(random) != NoServer || servers.DrawOther(random, 5) != NoServer {
		t.Error("one of no servers is drawn")
	}
}
