package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
)

func keyFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat(secret, 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// testbed is a cluster on loopback with its agents in this process.
type testbed struct {
	Cluster
	t       *testing.T
	folders []string
	servers []*Server
}

// newTestbed starts n agents.
func newTestbed(t *testing.T, n int, change func(*Cluster)) *testbed {
	t.Helper()
	b := &testbed{Cluster: DefaultCluster(), t: t, servers: make([]*Server, n)}
	b.KeyFile = keyFile(t, "k")
	b.Maintainer.Off = true
	b.Scheduler.Choices = twochoice.RandomRandom
	b.Patience = twochoice.Span(time.Second)
	for range n {
		// Use a port that was free a moment ago: the address must be known before the agents start.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		b.Agents = append(b.Agents, l.Addr().String())
		_ = l.Close()
		b.folders = append(b.folders, t.TempDir())
	}
	if change != nil {
		change(&b.Cluster)
	}
	for i := range b.servers {
		b.start(i)
	}
	t.Cleanup(func() {
		for i, s := range b.servers {
			for n := 0; n < 500 && s != nil && s.gate.bytes.Used() != 0; n++ { // clients are gone: nothing is in progress
				time.Sleep(10 * time.Millisecond)
			}
			if s != nil && s.gate.bytes.Used() != 0 {
				t.Errorf("agent %d has %d bytes for nothing", i, s.gate.bytes.Used())
			}
			b.stop(i)
		}
	})
	return b
}

func (b *testbed) start(i int) {
	b.t.Helper()
	var err error
	if b.servers[i], err = Start(b.Cluster, protocol.Node(i), b.folders[i], io.Discard); err != nil {
		b.t.Fatal(err)
	}
}

func (b *testbed) stop(i int) {
	b.t.Helper()
	if b.servers[i] == nil {
		return
	}
	b.servers[i].Stop()
	if err := b.servers[i].Wait(); err != nil {
		b.t.Error(err)
	}
	b.servers[i] = nil
}

// stats returns an agent's counts.
func (b *testbed) stats(i int) protocol.AgentStats {
	b.t.Helper()
	p, err := NewProber(b.Cluster)
	if err != nil {
		b.t.Fatal(err)
	}
	defer p.Close()
	stats, err := p.Status(b.t.Context(), protocol.Node(i))
	if err != nil {
		b.t.Fatal(err)
	}
	return stats
}

func (b *testbed) client() *Client {
	b.t.Helper()
	c, err := Connect(b.Cluster)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

func TestWhatWasWrittenIsReadBackByOthersAndAfterARestart(t *testing.T) {
	// At random, three of four writes are redirected, however busy the machine is.
	b := newTestbed(t, 4, func(c *Cluster) { c.Scheduler.Scheduler = twochoice.Uniform })
	ctx := t.Context()
	sums := map[string]uint32{}
	var mu sync.Mutex
	var all sync.WaitGroup
	redirected := 0
	c := b.client()
	for i := range 40 {
		all.Go(func() {
			data := make([]byte, 1+rand.IntN(300_000))
			for j := range data {
				data[j] = byte(rand.Uint32())
			}
			name := fmt.Sprintf("file/%d", i)
			w, err := c.Write(ctx, name, 0, data)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || w.Stamp == 0 {
				t.Errorf("%s: %v %v", name, w, err)
			}
			if w.Target != b.Home(name) {
				redirected++
			}
			sums[fmt.Sprintf("%s %d", name, len(data))] = crc32.ChecksumIEEE(data)
		})
	}
	all.Wait()
	if redirected == 0 || c.Stats().Redirected == 0 {
		t.Error("nothing was redirected")
	}
	verify := func() {
		t.Helper()
		other := b.client()
		for key, sum := range sums {
			var name string
			var n uint64
			if _, err := fmt.Sscanf(key, "%s %d", &name, &n); err != nil {
				t.Fatal(err)
			}
			data, err := other.Read(ctx, name, 0, n)
			if err != nil || crc32.ChecksumIEEE(data) != sum {
				t.Errorf("%s: %v, %d bytes", name, err, len(data))
			}
		}
	}
	verify()
	for i := range b.servers {
		b.stop(i)
	}
	for i := range b.servers {
		b.start(i)
	}
	verify()
}

func TestMaintainersBringEverythingHome(t *testing.T) {
	b := newTestbed(t, 3, func(c *Cluster) { c.Maintainer.Off = false })
	c, ctx := b.client(), t.Context()
	data := bytes.Repeat([]byte("maintained"), 10_000)
	for i := range 6 {
		if _, err := c.Write(ctx, fmt.Sprintf("f/%d", i), 0, data); err != nil {
			t.Fatal(err)
		}
	}
	left := -1
	for range 400 {
		left = 0
		for i := range b.servers {
			stats := b.stats(i)
			left += stats.Entries + stats.Fragments
		}
		if left == 0 {
			break
		}
		time.Sleep(25 * time.Millisecond)
	}
	if left > 0 {
		t.Errorf("%d entries and fragments are left", left)
	}
	for i := range 6 {
		if got, err := c.Read(ctx, fmt.Sprintf("f/%d", i), 0, uint64(len(data))); err != nil || !bytes.Equal(got, data) {
			t.Errorf("object %d: %v", i, err)
		}
	}
}

func TestWithTwoCopiesEitherIsEnough(t *testing.T) {
	b := newTestbed(t, 4, func(c *Cluster) {
		c.Copies = 2
		c.Patience = twochoice.Span(200 * time.Millisecond)
	})
	c, ctx := b.client(), t.Context()
	data := bytes.Repeat([]byte("twice"), 1000)
	for i := range 12 {
		if _, err := c.Write(ctx, fmt.Sprintf("f/%d", i), 0, data); err != nil {
			t.Fatal(err)
		}
	}
	for down := range b.servers {
		b.stop(down)
		for i := range 12 {
			name := fmt.Sprintf("f/%d", i)
			if b.Home(name) == protocol.Node(down) {
				continue
			}
			if got, err := c.Read(ctx, name, 0, uint64(len(data))); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s with agent %d down: %v", name, down, err)
			}
		}
		b.start(down)
	}
}

func TestWhoHasAnotherKeyIsNotLetIn(t *testing.T) {
	b := newTestbed(t, 1, nil)
	other := b.Cluster
	other.KeyFile = keyFile(t, "z")
	other.Patience, other.Attempts = twochoice.Span(50*time.Millisecond), 3
	c, err := Connect(other)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(t.Context(), "o", 0, []byte("x")); err == nil {
		t.Error("a client with another key wrote")
	}
	// A client without a key is refused too.
	conn, err := tls.Dial("tcp", b.Agents[0], &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err = greet(newWire(conn, nil), protocol.Message{Kind: protocol.Hello, Version: protocol.Version}); err == nil {
			t.Error("a client without a key was greeted")
		}
	}
}

func TestACancelledWriteIsUndecidedOrNotDone(t *testing.T) {
	b := newTestbed(t, 2, nil)
	b.stop(0)
	b.stop(1)
	c := b.client()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Write(ctx, "o", 0, []byte("x"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write to nobody: %v", err)
	}
}

func TestReadyNamesWhoIsNotThere(t *testing.T) {
	b := newTestbed(t, 3, nil)
	c := b.client()
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.stop(2)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := b.client().Ready(ctx); err == nil || !strings.Contains(err.Error(), "agent 2 at "+b.Agents[2]) {
		t.Error(err)
	}
}

func TestKeyFilesThatOthersCanReadAreRefused(t *testing.T) {
	path := keyFile(t, "k")
	for want, change := range map[string]func() error{
		"allowed is 0600": func() error { return os.Chmod(path, 0o640) },
		"there is no key": func() error { return os.Remove(path) },
		"has 5 bytes":     func() error { return os.WriteFile(path, []byte("short"), 0o600) },
		"is not a file":   func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		_ = os.RemoveAll(path)
		if err := os.WriteFile(path, bytes.Repeat([]byte("k"), 32), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("wanted %q, got %v", want, err)
		}
	}
}

func TestClusterFilesAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.json")
	good := `{"agents": ["a:1", "b:2"], "key_file": "k"}`
	for text, want := range map[string]string{
		good:                                 "",
		`{"agents": [], "key_file": "k"}`:    "names 0 addresses",
		`{"agents": ["a"], "key_file": "k"}`: `agents[0] is "a"`,
		`{"agents": ["a:1", "a:1"], "key_file": "k"}`:                              "agents[1]",
		`{"agents": ["a:1"]}`:                                                      "key_file is missing",
		`{"agents": ["a:1"], "key_file": "k", "copies": 2}`:                        "copies is 2",
		`{"agents": ["a:1"], "key_file": "k", "memory": 1000}`:                     "memory is 1000",
		`{"agents": ["a:1"], "key_file": "k", "connections": 1}`:                   "connections is 1",
		`{"agents": ["a:1"], "key_file": "k", "colour": 2}`:                        "colour",
		`{"agents": ["a:1"], "key_file": "k", "scheduler": {"scheduler": "best"}}`: "scheduler is \"best\"",
		good + "{}": "more after",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadCluster(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: wanted %q, got %v", text, want, err)
		}
	}
}
