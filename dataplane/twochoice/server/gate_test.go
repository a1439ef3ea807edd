package server

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

// Agents with little memory get requests that do not fit at the moment, and requests that never
// fit.
func TestRequestsThatFindNoMemoryComeAgainAndThoseThatNeverWillAreRefused(t *testing.T) {
	b := newTestbed(t, 2, func(c *Cluster) {
		c.Memory, c.Attempts = leastMemory, 1000
		c.Scheduler.Scheduler = twochoice.Uniform // half of the writes are redirected
	})
	c := b.client()
	content := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 4<<20) }
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			name := fmt.Sprintf("f/%d", i)
			if _, err := c.Write(t.Context(), name, 0, content(i)); err != nil {
				t.Error(err)
			}
			if got, err := c.Read(t.Context(), name, 0, 4<<20); err != nil || !bytes.Equal(got, content(i)) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	all.Wait()
	if refusals(c) == 0 {
		t.Error("no request found the agents without memory")
	}
	var refused *protocol.Error
	if _, err := c.Write(t.Context(), "long", 0, make([]byte, 20<<20)); !errors.As(err, &refused) || refused.Code != protocol.Refused {
		t.Errorf("a write that is longer than the memory: %v", err)
	}
	if _, err := c.Write(t.Context(), "long", 30<<20, []byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(t.Context(), "long", 0, 20<<20); !errors.As(err, &refused) || refused.Code != protocol.Refused {
		t.Errorf("a read that is longer than the memory: %v", err)
	}
}

func TestOneConnectionMoreThanTheAgentHasIsRefusedByName(t *testing.T) {
	b := newTestbed(t, 1, func(c *Cluster) {
		c.Connections = 2
		c.Patience, c.Attempts = twochoice.Span(50*time.Millisecond), 3
	})
	var there []*Client
	for range 2 {
		there = append(there, b.client())
		if err := there[len(there)-1].Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.client().Write(t.Context(), "o", 0, []byte("x")); err == nil || !strings.Contains(err.Error(), "has 2 connections") {
		t.Errorf("a third client: %v", err)
	}
	there[0].Close()
	if err := b.client().Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := there[1].Write(t.Context(), "o", 0, []byte("x")); err != nil {
		t.Error(err)
	}
}

func TestTooFewDescriptorsForAnAgentAreNamed(t *testing.T) {
	c := DefaultCluster()
	c.Agents = make([]string, 10)
	if proven, unproven, err := c.shares(1 << 16); err != nil || proven != c.Connections || unproven != mostUnproven {
		t.Errorf("%d and %d connections, %v", proven, unproven, err)
	}
	for _, descriptors := range []int{0, keptDescriptors + 10, keptDescriptors + 17} {
		if proven, unproven, err := c.shares(descriptors); err == nil {
			t.Errorf("%d and %d connections of %d descriptors", proven, unproven, descriptors)
		}
	}
}
