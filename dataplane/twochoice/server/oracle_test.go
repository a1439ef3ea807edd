package server

import (
	"fmt"
	"strings"
	"testing"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

func TestAnOracleCountsWritesInTransit(t *testing.T) {
	b := newTestbed(t, 3, nil)
	oracle := NewOracle(3)
	asking := b.Cluster
	asking.Scheduler = twochoice.Defaults(twochoice.Oracle)
	if _, err := Connect(asking); err == nil || !strings.Contains(err.Error(), "Oracle.Connect") {
		t.Errorf("a client of its own asks the oracle: %v", err)
	}
	fixed := b.Cluster
	fixed.Scheduler = twochoice.Defaults(twochoice.Fixed)
	for _, c := range []Cluster{asking, fixed} {
		client, err := oracle.Connect(c)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for i := range 9 {
			if _, err := client.Write(t.Context(), fmt.Sprintf("%s/%d", c.Scheduler.Scheduler, i), 0, make([]byte, 2000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for node := range twochoice.Server(3) {
		if left := oracle.queues.Length(node); left != 0 {
			t.Errorf("%v bytes are on their way to agent %d when all is written", left, node)
		}
	}
	// The oracle avoids agents with bytes in transit.
	oracle.done(0, -1<<20)
	oracle.done(1, -1<<20)
	client, err := oracle.Connect(asking)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range 6 {
		w, err := client.Write(t.Context(), fmt.Sprintf("kept/%d", i), 0, make([]byte, 2000))
		if err != nil || w.Target != 2 {
			t.Errorf("write %d went to agent %d: %v", i, w.Target, err)
		}
	}
}

func TestStepsOfRequestsAreTimed(t *testing.T) {
	b := newTestbed(t, 3, func(c *Cluster) { c.Scheduler.Scheduler = twochoice.Uniform })
	client := b.client()
	client.TimeSteps()
	redirected := 0
	for i := range 12 {
		name := fmt.Sprintf("f/%d", i)
		w, err := client.Write(t.Context(), name, 0, make([]byte, 2000))
		if err != nil {
			t.Fatal(err)
		}
		if w.Target != b.Home(name) {
			redirected++
		}
	}
	if _, err := client.Read(t.Context(), "f/0", 0, 2000); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[protocol.Kind]int{protocol.Put: 12, protocol.Register: redirected, protocol.Query: 1} {
		took := client.Steps(kind)
		if len(took) != want {
			t.Errorf("%d requests of kind %v were timed, not %d", len(took), kind, want)
		}
		for _, d := range took {
			if d <= 0 {
				t.Errorf("a request of kind %v took %v", kind, d)
			}
		}
	}
	if b.client().Steps(protocol.Put) != nil {
		t.Error("a client that times nothing has times")
	}
}
