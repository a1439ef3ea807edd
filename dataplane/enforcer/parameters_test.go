package enforcer

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/tests/must"
)

const whole = `{"policy": "pm", "mode": "best-effort", "depth": 8, "workloads": [
	{"name": "web", "priority": 1, "pairs": [[0.5, 0.02], [0.1, 0.3]], "slo": "50ms"},
	{"name": "copy", "priority": 2, "slo": 0.25, "weight": 2, "reservation": 0.1, "limit": 0.5,
	 "best_effort": true}]}`

func parse(text []byte) (Parameters, error) {
	var p Parameters
	if err := limits.Decode(text, &p); err != nil {
		return p, err
	}
	return p.checked()
}

func TestParametersAreReadFromJSON(t *testing.T) {
	p, err := parse([]byte(whole))
	must.Succeed(t, err)
	web, copied := p.Workloads[0], p.Workloads[1]
	if p.Policy != PM || p.Mode != BestEffort || p.Depth != 8 || web.SLO != Span(50*time.Millisecond) ||
		web.Pairs[1] != [2]float64{0.1, 0.3} || web.Weight != 1 || copied.SLO != Span(250*ms) ||
		!copied.BestEffort || p.Cake.Interval != Span(10*time.Second) {
		t.Errorf("read %+v", p)
	}
	text, err := json.Marshal(p)
	must.Succeed(t, err)
	if again, err := parse(text); err != nil || !reflect.DeepEqual(p, again) {
		t.Errorf("written and read again: %+v, %v", again, err)
	}
}

func TestBadParametersGetASentence(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                  "cannot unmarshal",
		`{"policy": "pm"`:                     "unexpected EOF",
		`{"policy": "pm"} x`:                  "more after",
		`{"policy": "pm", "burst": 1}`:        `unknown field "burst"`,
		`{"policy": "fifo"}`:                  `policy is "fifo"`,
		`{"policy": "pm"}`:                    "no workloads",
		`{"policy": "pm", "mode": "no"}`:      `mode is "no"`,
		`{"policy": "pm", "workloads": [{}]}`: "no name",
		`{"policy": "pm", "workloads": [{"name": "a"}, {"name": "a"}]}`:                           "twice",
		`{"policy": "pm", "workloads": [{"name": "a", "pairs": [[0, 1]]}]}`:                       "pairs[0]",
		`{"policy": "pm", "workloads": [{"name": "a", "pairs": [[1e31, 1]]}]}`:                    "at most 1e30",
		`{"policy": "pm", "workloads": [{"name": "a", "slo": "soon"}]}`:                           "is not a time",
		`{"policy": "pm", "workloads": [{"name": "a", "slo": -1}]}`:                               "slo is -1",
		`{"policy": "pm", "workloads": [{"name": "a", "weight": 1e-12}]}`:                         "weight is 1e-12",
		`{"policy": "mclock", "workloads": [{"name": "a", "reservation": 1, "limit": 0.5}]}`:      "limit 0.5",
		`{"policy": "cake", "cake": {"floor": 0.6}, "workloads": [{"name": "a"}, {"name": "b"}]}`: "floor",
	} {
		_, err := parse([]byte(text))
		must.Refuse(t, err, want)
	}
}

// The pair comes from a trace with two requests of 4 KiB 1 ns apart. A request that conforms is not
// held; a simultaneous request is held for one nanosecond.
func TestABucketMayBeFasterThanAnyLink(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Workloads: []Workload{
		{Name: "a", Pairs: [][2]float64{{4.7056e12, 4705.6}, {1e3, 1e6}}}}})
	for i, at := range []time.Duration{0, 1, 1} {
		e.Arrive(at, &Request{Cost: 4705.6})
		request, again := e.Next(at)
		if held := request == nil; held != (i == 2) {
			t.Fatalf("request %d at %d ns: held %t, asked to come again at %v", i, at, held, again)
		}
	}
}

func TestAChangeOfPairsKeepsWhatBucketsHold(t *testing.T) {
	with := func(pairs ...[2]float64) Parameters {
		return Parameters{Policy: PM, Workloads: []Workload{{Name: "a", Pairs: pairs}}}
	}
	fills := func(e *Enforcer) []float64 {
		var out []float64
		for _, b := range e.flows[0].shaper.buckets {
			out = append(out, b.fill)
		}
		return out
	}
	e := mustNew(t, with([2]float64{0.5, 0.1}, [2]float64{0.1, 1}))
	e.Arrive(0, &Request{Cost: 0.06})
	if r, _ := e.Next(0); r == nil {
		t.Fatal("the first request found no room")
	}
	for _, step := range []struct {
		at    time.Duration
		pairs [][2]float64
		want  []float64
	}{
		{40 * ms, [][2]float64{{0.5, 0.1}, {0.1, 1}}, []float64{0.04, 0.056}},
		// 0.3 is above 0.1: at most that bucket's content; a burst of 0.03: at most 0.03
		{40 * ms, [][2]float64{{0.5, 0.1}, {0.3, 0.5}, {0.2, 0.03}}, []float64{0.04, 0.056, 0.03}},
		// no bucket is slower than 0.05: the content of the slowest (0.2, with 0.03)
		{40 * ms, [][2]float64{{0.05, 9}}, []float64{0.03}},
		{40 * ms, nil, nil},
		{40 * ms, [][2]float64{{0.05, 9}}, []float64{0}},
	} {
		must.Succeed(t, e.SetParameters(step.at, with(step.pairs...)))
		got := fills(e)
		for i, want := range step.want {
			if d := got[i] - want; d > 1e-12 || d < -1e-12 {
				t.Errorf("pairs %v hold %v, want %v", step.pairs, got, step.want)
			}
		}
	}
}

func TestWorkloadsThatAreTakenOutAreBestEffort(t *testing.T) {
	e := mustNew(t, Parameters{Policy: PM, Depth: 1, Workloads: []Workload{
		{Name: "gone", Priority: 1, Pairs: [][2]float64{{1e-6, 1e-6}}}, {Name: "stays", Priority: 2}}})
	only := Parameters{Policy: PM, Depth: 1, Workloads: []Workload{{Name: "stays", Priority: 2}}}
	got := drive(t, e, []job{{0, 0, 0.01}, {0, 0, 0.01}, {0, 0, 0.01}, {1, 0, 0.01}, {1, 0, 0.01}},
		change{5 * ms, func(now time.Duration, e *Enforcer) {
			if err := e.SetParameters(now, only); err != nil {
				t.Error(err)
			}
		}})
	wantOrder(t, got, 0, 3, 4, 1, 2)
	if len(e.flows) != 1 {
		t.Errorf("%d queues are left, want 1", len(e.flows))
	}
}

func TestANewWeightCountsForWhatWaits(t *testing.T) {
	p := Parameters{Policy: PS, Depth: 1, Workloads: []Workload{{Name: "a"}, {Name: "b"}}}
	heavy := p
	heavy.Workloads = []Workload{{Name: "a"}, {Name: "b", Weight: 4}}
	var jobs []job
	for range 10 {
		jobs = append(jobs, job{0, 0, 0.01}, job{1, 0, 0.01})
	}
	got := drive(t, mustNew(t, p), jobs, change{45 * ms, func(now time.Duration, e *Enforcer) {
		if err := e.SetParameters(now, heavy); err != nil {
			t.Error(err)
		}
	}})
	b := 0
	for _, one := range got[5:12] {
		b += one.workload
	}
	if b < 5 {
		t.Errorf("of 7 requests after the change %d were of the workload with weight 4 of 5", b)
	}
}
