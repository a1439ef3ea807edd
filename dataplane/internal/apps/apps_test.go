package apps

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/servertest"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

const childVariable = "HOTBED_TEST_CLIENT_PROCESS"

// TestMain also runs the client processes: their program is the test program.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := Process(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// agents starts agents on loopback, in this process.
func agents(t *testing.T, n int) server.Cluster {
	t.Helper()
	return servertest.Start(t, n, servertest.Unmaintained).Cluster
}

func run(t *testing.T, c server.Cluster, p Plan) Report {
	t.Helper()
	t.Setenv(childVariable, "1")
	r, err := Run(t.Context(), c, p, os.Args[0])
	must.Succeed(t, err)
	return r
}

func sum(values []int64) (out int64) {
	for _, v := range values {
		out += v
	}
	return out
}

func TestApplicationsWriteFromProcessesOfTheirOwnAndAreReadBack(t *testing.T) {
	c := agents(t, 6)
	p := Plan{Nodes: 4, Processes: 2, Seed: 3, VerifyAll: true, Patience: twochoice.Span(time.Minute),
		Apps: []Application{
			{Name: "front", Scheduler: twochoice.Both, Bursts: 2, Writes: 2, Size: 3000, Start: twochoice.Span(50 * time.Millisecond)},
			{Name: "half", Scheduler: twochoice.Fixed, FirstNode: 3, Nodes: 2, Width: 2, Writes: 3, Size: 2000, Background: true},
			{Name: "always", Scheduler: twochoice.Fixed, Nodes: 1, Writes: 1, Size: 1500, Background: true, Repeat: true,
				Think: twochoice.Span(time.Millisecond)},
		}}
	r := run(t, c, p)
	if r.Processes != 8 || len(r.Errors) != 0 {
		t.Errorf("%d processes, errors %v", r.Processes, r.Errors)
	}
	front, half, always := r.Apps[0], r.Apps[1], r.Apps[2]
	if front.Writes != 32 || front.Bytes != 96000 || sum(front.ServerBytes) != 96000 || front.Latency.N != 32 {
		t.Errorf("%+v", front)
	}
	for rank, seconds := range front.RankSeconds {
		if seconds <= 0 || seconds > r.Seconds {
			t.Errorf("rank %d ended after %v s of %v", rank, seconds, r.Seconds)
		}
	}
	if half.Ranks != 4 || half.Writes > 12 || half.Redirected != 0 {
		t.Errorf("%+v", half)
	}
	got := 0
	for _, bytes := range half.ServerBytes {
		if bytes > 0 {
			got++
		}
	}
	if got > 2 {
		t.Errorf("a file that is striped over 2 servers has bytes on %d", got)
	}
	if always.Ranks != 2 || always.Writes < 2 {
		t.Errorf("%+v", always)
	}
	if r.Schedulers[twochoice.Both].Writes != 32 || r.Schedulers[twochoice.Both].Probes == 0 {
		t.Errorf("%+v", r.Schedulers)
	}
	writes := front.Writes + half.Writes + always.Writes
	redirected := front.Redirected + half.Redirected + always.Redirected
	if put, register := r.Steps["put"], r.Steps["register"]; put.N != writes || register.N != redirected || put.Mean <= 0 {
		t.Errorf("of %d writes, %d redirected, the steps are %+v", writes, redirected, r.Steps)
	}
	v := r.Verified
	if v == nil || v.Objects != front.Writes+half.Writes+always.Writes || len(v.Bad) != 0 || v.Redirected != front.Redirected {
		t.Errorf("%+v", v)
	}
}

func TestTheOracleOfOneMachineGivesEveryServerTheSame(t *testing.T) {
	c := agents(t, 4)
	c.Scheduler = twochoice.Defaults(twochoice.Oracle)
	r := run(t, c, Plan{Nodes: 4, Processes: 2, Verify: true, Patience: twochoice.Span(time.Minute),
		Apps: []Application{{Name: "f", Writes: 1, Size: 5000}}})
	for server, bytes := range r.Apps[0].ServerBytes {
		if bytes == 0 {
			t.Errorf("server %d got nothing: %v", server, r.Apps[0].ServerBytes)
		}
	}
	if r.Schedulers[twochoice.Oracle].Probes != 0 || len(r.Verified.Bad) != 0 {
		t.Errorf("%+v %+v", r.Schedulers, r.Verified)
	}
}

func TestClientProcessesThatDoNotRunAreAnError(t *testing.T) {
	c := agents(t, 1)
	p := Plan{Nodes: 1, Processes: 2, Patience: twochoice.Span(time.Minute), Apps: []Application{{Name: "f", Writes: 1, Size: 10}}}
	_, err := Run(t.Context(), c, p, "/nonexistent/program")
	must.Refuse(t, err, "cannot be started")
	// A program that ends without a frame.
	if _, err := Run(t.Context(), c, p, "/bin/true"); err == nil {
		t.Error("no error")
	}
}

func TestAPlanEndsWhenItsTimeIsOver(t *testing.T) {
	defer func(usual time.Duration) { leaving = usual }(leaving)
	leaving = 100 * time.Millisecond
	c := agents(t, 1)
	t.Setenv(childVariable, "1")
	_, err := Run(t.Context(), c, Plan{Nodes: 1, Processes: 1, Patience: twochoice.Span(300 * time.Millisecond),
		Apps: []Application{{Name: "f", Writes: 1, Size: 10, Start: twochoice.Span(time.Hour)}}}, os.Args[0])
	must.Refuse(t, err, context.DeadlineExceeded.Error())
}

func TestAStripeLiesWhereItsNumberSays(t *testing.T) {
	const agents = 7
	for _, width := range []int{1, 2, 5, 7} {
		homes, seen := map[protocol.Node]int{}, map[uint64]bool{}
		for n := range 10 {
			for rank := range 3 {
				k := stripe(n, rank, 3, width, agents)
				if seen[k] {
					t.Fatalf("stripe %d twice with width %d", k, width)
				}
				seen[k] = true
				homes[protocol.HomeOf(fmt.Sprintf("file/%d", k), agents)]++
			}
		}
		if len(homes) != width {
			t.Errorf("width %d: stripes are at home on %v", width, homes)
		}
		for node, count := range homes {
			if count < 30/width || count > 30/width+1 {
				t.Errorf("width %d: node %d has %d of 30 stripes", width, node, count)
			}
		}
	}
}

func TestPlansThatCannotBeAreOneSentence(t *testing.T) {
	for want, text := range map[string]string{
		"0 nodes":             `{"apps": []}`,
		"apps is empty":       `{"nodes": 1, "processes": 1}`,
		"unknown field":       `{"nods": 1}`,
		"in the background":   `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "writes": 1, "size": 1, "background": true}]}`,
		"width is 9":          `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "writes": 1, "size": 1, "width": 9}]}`,
		"2 nodes from node 0": `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "writes": 1, "size": 1, "nodes": 2}]}`,
		"0 writes":            `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "size": 1}]}`,
		"repeats itself":      `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "writes": 1, "size": 1, "repeat": true}]}`,
		"scheduler is":        `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "writes": 1, "size": 1, "scheduler": "x"}]}`,
		"have the name a":     `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "writes": 1, "size": 1}, {"name": "a", "writes": 1, "size": 1}]}`,
		"leave one of them out": `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "writes": 1, "size": 1, "pool": "p",
			"scheduler": "fixed"}], "ceph": {"conf": "c", "keyring": "k", "user": "u"}}`,
		"does not name conf, keyring and user": `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "writes": 1, "size": 1,
			"pool": "p"}], "ceph": {"conf": "c"}}`,
		"more after the JSON":  `{"nodes": 1, "processes": 1, "apps": [{"name": "a", "writes": 1, "size": 1}]} {}`,
		"16384 processes at m": `{"nodes": 9999, "processes": 9}`,
	} {
		path := must.Write(t, "plan", text)
		_, err := LoadPlan(path, 4)
		must.Refuse(t, err, want)
	}
}
