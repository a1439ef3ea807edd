package nfsproxy

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/tests/memnfs"
)

func TestAWorkloadHasNoMoreConnectionsThanItMay(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm"}`, func(c *Config) { c.Connections = 3 })
	var mine []net.Conn
	for range 3 {
		mine = append(mine, r.raw(2))
	}
	r.eventually("they are there", func(s Status) bool { return s.Workloads[0].Connections == 3 })
	for range 2 {
		if conn := r.raw(2); !closed(conn) {
			t.Error("a fourth connection was let in")
		}
	}
	if s := r.status(); s.Workloads[0].ConnectionsRefused != 2 {
		t.Errorf("%d were refused", s.Workloads[0].ConnectionsRefused)
	}
	r.works(3)
	// A workload that takes over clients gets their connections, and no further places.
	p := parameters(`{"policy": "pm"}`)
	p.Workloads[0].Clients, p.Workloads[1].Clients = p.Workloads[1].Clients, p.Workloads[0].Clients
	r.put(p)
	r.eventually("they count for the other one", func(s Status) bool { return s.Workloads[1].Connections == 3 })
	if conn := r.raw(2); !closed(conn) {
		t.Error("after other parameters a fourth connection was let in")
	}
	_ = mine[0].Close()
	r.eventually("one is gone", func(s Status) bool { return s.Workloads[1].Connections == 2 })
	handle := r.file("f", 4096)
	again := r.raw(2)
	_, _ = again.Write(readCall(1, handle, 0, 100))
	replies(t, again, 1)
}

func TestMoreWorkloadsThanDescriptorsAreRefused(t *testing.T) {
	c := Config{Connections: 512}
	if n, err := c.places(3); n != 512 || err != nil {
		t.Errorf("%d connections, %v", n, err)
	}
	if _, err := c.places(1 << 30); err == nil {
		t.Error("there are descriptors for a billion workloads")
	}
}

// TestLongCallsOfMoreClientsThanThereIsMemoryForAllArrive writes in parallel. One client's partial
// record must never block another's completion.
func TestLongCallsOfMoreClientsThanThereIsMemoryForAllArrive(t *testing.T) {
	const clients, size = 24, 1 << 20
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 2}`, func(c *Config) {
		c.ClientMemory, c.WorkloadMemory = "2MiB", "4MiB"
		c.RecordTimeout = enforcer.Span(3600e9)
	})
	var all sync.WaitGroup
	for i := range clients {
		c, root := r.client(2)
		all.Go(func() {
			handle, err := c.Create(root, fmt.Sprint("f", i))
			for n := 0; n < 4 && err == nil; n++ {
				err = c.Write(handle, 0, make([]byte, size))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	var most int
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		default:
			most = max(most, r.status().Workloads[0].Memory)
		}
	}
	if most > 4<<20+size+4096 {
		t.Errorf("the workload had up to %d bytes", most)
	}
}

func TestHalfACallIsNotWaitedForForEver(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm"}`, func(c *Config) { c.RecordTimeout = enforcer.Span(1e9) })
	handle := r.file("f", 4096)
	whole := r.raw(2)
	_, _ = whole.Write(readCall(1, handle, 0, 100))
	replies(t, whole, 1)
	var halves []net.Conn
	for _, half := range [][]byte{{0}, binary.BigEndian.AppendUint32(nil, 1<<31|1<<20), readCall(1, handle, 0, 9)[:50]} {
		conn := r.raw(2)
		_, _ = conn.Write(half)
		halves = append(halves, conn)
	}
	for i, conn := range halves {
		if !closed(conn) {
			t.Errorf("half a call is waited for: %d", i)
		}
	}
	_, _ = whole.Write(readCall(2, handle, 0, 100)) // silence between calls is no partial call
	replies(t, whole, 1)
}

func TestAClientThatWaitsForNothingIsIdleAfterAWhile(t *testing.T) {
	open := make(chan struct{})
	r := newRig(t, &memnfs.Server{Hold: until(open)}, `{"policy": "pm"}`, func(c *Config) { c.IdleTimeout = enforcer.Span(1e9) })
	handle := r.file("f", 4096)
	waits := r.raw(2)
	_, _ = waits.Write(readCall(1, handle, 0, 100))
	if idle := r.raw(2); !closed(idle) {
		t.Error("an idle client is there for ever")
	}
	close(open)
	replies(t, waits, 1) // it waited as long, for a reply
}
