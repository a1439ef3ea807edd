package burst

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"strings"
	"testing"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/twochoice"
)

func run(t *testing.T, p Parameters) *Result {
	t.Helper()
	must.Succeed(t, p.Validate())
	result, err := Run(p)
	must.Succeed(t, err)
	return result
}

// pair returns two servers with 3 and 15 writes, and a node of two processes.
func pair(scheduler twochoice.Policy) Parameters {
	p := Defaults()
	p.Scheduler, p.Servers, p.Processes, p.PerNode = scheduler, 2, 2, 2
	p.LoadMean, p.LoadSD, p.StragglerRatio = 3, 0, 0.5
	return p
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// Computed manually: a write takes 20 ms, a one-way trip 2.5 ms. The calm server is free at 60 ms
// and the straggler at 300; each acknowledgement arrives 2.5 ms later.
func TestTwoServersByHand(t *testing.T) {
	for _, c := range []struct {
		scheduler      twochoice.Policy
		response, mean float64
		straggler      int64
		messages       Messages
	}{
		{twochoice.Fixed, 0.3225, (0.0825 + 0.3225) / 2, 1, Messages{Writes: 2, Acknowledgements: 2}},
		{twochoice.TwoChoice, 0.1025, (0.0825 + 0.1025) / 2, 0,
			Messages{Probes: 4, Answers: 4, Writes: 2, Acknowledgements: 2}},
		// With two servers, both are the two least loaded.
		{twochoice.Collaborative, 0.3225, (0.0825 + 0.3225) / 2, 1,
			Messages{Probes: 2, Answers: 2, Decisions: 2, Writes: 2, Acknowledgements: 2}},
		{twochoice.Preassign, 0.1025, (0.0825 + 0.1025) / 2, 0,
			Messages{Probes: 4, Answers: 4, Decisions: 4, Writes: 2, Acknowledgements: 2}},
		{twochoice.Oracle, 0.1025, (0.0825 + 0.1025) / 2, 0, Messages{Writes: 2, Acknowledgements: 2}},
	} {
		r := run(t, pair(c.scheduler)).Rounds[0]
		if !near(r.ResponseS, c.response) || !near(r.MeanS, c.mean) || !near(r.BestS, 0.1025) {
			t.Errorf("%s: response %v, mean %v, best %v; by hand %v, %v, 0.1025", c.scheduler,
				r.ResponseS, r.MeanS, r.BestS, c.response, c.mean)
		}
		if r.StragglerWrites != c.straggler || r.Stragglers != 1 || r.Messages != c.messages {
			t.Errorf("%s: %+v; by hand %d writes on the straggler and %+v", c.scheduler, r, c.straggler,
				c.messages)
		}
	}
}

// Writes that begin at random times over a long period arrive at a server as a Poisson process. Its
// mean wait is that of M/D/1, load x service / (2 (1 - load)).
func TestAServerIsAnMD1Queue(t *testing.T) {
	for _, load := range []float64{0.4, 0.8} {
		p := Defaults()
		p.Scheduler, p.Servers, p.Processes, p.PerNode = twochoice.Fixed, 2, 300_000, 1
		p.LoadMean, p.LoadSD, p.Link, p.Trip, p.Service, p.Seed = 0, 0, 0, 0, 1e-4, 7
		p.Spread = float64(p.Processes) / 2 * p.Service / load
		r := run(t, p).Rounds[0]
		wait, want := r.MeanS-p.Service, load*p.Service/(2*(1-load))
		if math.Abs(wait/want-1) > 0.03 {
			t.Errorf("at load %v the mean wait is %v, of M/D/1 it is %v", load, wait, want)
		}
	}
}

func TestEverySchedulerGetsTheSameLoadsAndNoneBeatsTheBound(t *testing.T) {
	p := Defaults()
	p.Servers, p.Processes, p.StragglerRatio, p.Rounds, p.LearnRounds = 100, 1000, 0.2, 3, 2
	var loads string
	for _, scheduler := range twochoice.Policies {
		p.Scheduler, p.Trace = scheduler, true
		result := run(t, p)
		seen := fmt.Sprint(result.Trace.Loads, result.Trace.Homes)
		if loads == "" {
			loads = seen
		}
		if seen != loads {
			t.Errorf("%s has other loads than %s", scheduler, twochoice.Policies[0])
		}
		if len(result.Rounds) != 3 || len(result.Learning) != 2 {
			t.Errorf("%s: %d bursts count, %d do not", scheduler, len(result.Rounds),
				len(result.Learning))
		}
		for _, r := range result.Rounds {
			if r.ResponseS < r.BestS || r.MeanS > r.ResponseS || r.Stragglers != 20 {
				t.Errorf("%s: %+v", scheduler, r)
			}
			if r.Messages.Writes != 1000 || r.Messages.Acknowledgements != 1000 {
				t.Errorf("%s lost writes: %+v", scheduler, r.Messages)
			}
			if scheduler == twochoice.Oracle && !near(r.ResponseS, r.BestS) {
				t.Errorf("the oracle needs %v where %v is possible", r.ResponseS, r.BestS)
			}
			if scheduler == twochoice.Fixed && (r.Most != 10 || r.StragglerMost != 10) {
				t.Errorf("fixed placement gives one server %d, a straggler %d", r.Most, r.StragglerMost)
			}
		}
	}
}

func TestWhatServersOfALoadWereGivenAddsUp(t *testing.T) {
	p := Defaults()
	p.Servers, p.Processes, p.StragglerRatio, p.Rounds = 200, 2000, 0.05, 4
	result := run(t, p)
	servers, writes := 0.0, 0.0
	for i, row := range result.Loads {
		servers += row.Servers
		writes += row.Servers * row.Mean
		if row.Mean > row.Most || row.Most > float64(row.Largest) || row.Bursts > 4 {
			t.Errorf("%+v", row)
		}
		if last := i == len(result.Loads)-1; row.Straggler != last {
			t.Errorf("row %d of %d: %+v", i, len(result.Loads), row)
		}
	}
	if !near(servers, 200) || !near(writes, 2000) {
		t.Errorf("%v servers were given %v writes", servers, writes)
	}
	if last := result.Loads[len(result.Loads)-1]; !near(last.Servers, 10) {
		t.Errorf("there are %v stragglers", last.Servers)
	}
}

func TestAHeavyPriorIsSwayedLessByWhatWasLearned(t *testing.T) {
	// All at once, on idle servers: only P(0) decides the next server that reports 0.
	p := Defaults()
	p.Scheduler, p.Servers, p.Processes = twochoice.Preassign, 64, 512
	p.LoadMean, p.LoadSD, p.Rounds = 0, 0, 40
	most := func(weight float64) (sum int64) {
		p.Weight = weight
		for _, round := range run(t, p).Rounds {
			sum += round.Most
		}
		return sum
	}
	if light, heavy := most(0), most(1e6); light <= heavy {
		t.Errorf("the fullest servers got %d writes with a prior of no weight, %d with a heavy one", light, heavy)
	}
}

// hash returns a hash of a run's complete result.
func hash(t *testing.T, p Parameters) string {
	t.Helper()
	sum := fnv.New64a()
	must.Succeed(t, json.NewEncoder(sum).Encode(run(t, p)))
	return fmt.Sprintf("%016x", sum.Sum64())
}

func TestTheSameSeedGivesTheSameBits(t *testing.T) {
	p := Defaults()
	p.Servers, p.Processes, p.StragglerRatio, p.Rounds, p.LearnRounds = 60, 500, 0.1, 2, 2
	p.Spread, p.Redirects = 0.03, true
	seen := map[string]bool{}
	for _, scheduler := range twochoice.Policies {
		p.Scheduler, p.Seed = scheduler, 1
		first, second := hash(t, p), hash(t, p)
		p.Seed = 2
		if other := hash(t, p); first != second || first == other || seen[first] {
			t.Errorf("%s: seed 1 gave %s and %s, seed 2 %s", scheduler, first, second, other)
		}
		seen[first] = true
	}
}

func TestARequestThatMakesNoSenseIsOneSentence(t *testing.T) {
	for request, said := range map[string]string{
		`{"servers": 1}`:              "servers is 1; allowed is 2 to 1e+06",
		`{"scheduler": "best"}`:       `scheduler is "best"; allowed is one of`,
		`{"choices": "home"}`:         `choices is "home"; allowed is`,
		`{"sevrers": 3}`:              `the request cannot be read: json: unknown field "sevrers"`,
		`{`:                           "the request cannot be read: unexpected EOF",
		`{"processes_per_node": "8"}`: "the request cannot be read: json: cannot unmarshal string",
	} {
		_, err := Read(strings.NewReader(request))
		if err == nil || !strings.HasPrefix(err.Error(), said) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; expected %s", request, err, said)
		}
	}
}
