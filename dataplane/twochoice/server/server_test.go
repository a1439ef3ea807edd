package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/servertest"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/server"
)

// start starts n agents without maintainers, and checks that they end with no memory reserved.
func start(t *testing.T, n int, change ...func(*server.Cluster)) *servertest.Agents {
	t.Helper()
	defaults := func(c *server.Cluster) {
		c.Scheduler.Choices = twochoice.RandomRandom
		c.Patience = twochoice.Span(time.Second)
	}
	b := servertest.Start(t, n, append([]func(*server.Cluster){servertest.Unmaintained, defaults}, change...)...)
	t.Cleanup(func() {
		for _, s := range b.Servers { // clients are gone: nothing is in progress
			must.Come(t, "no memory is reserved", func() bool { return s == nil || s.Reserved() == 0 })
		}
	})
	return b
}

func TestWhatWasWrittenIsReadBackByOthersAndAfterARestart(t *testing.T) {
	// At random, three of four writes are redirected, however busy the machine is.
	b := start(t, 4, func(c *server.Cluster) {
		c.Scheduler.Scheduler, c.Copies = twochoice.Uniform, 2
		c.Patience = twochoice.Span(5 * time.Second)
	})
	ctx := t.Context()
	sums := map[string]uint32{}
	var mu sync.Mutex
	var all sync.WaitGroup
	redirected := 0
	c := servertest.Client(t, b.Cluster)
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
	verify := func(down protocol.Node) {
		t.Helper()
		hasty := b.Cluster // asks the other copy soon
		hasty.Patience, hasty.Attempts = twochoice.Span(200*time.Millisecond), 100
		other := servertest.Client(t, hasty)
		for key, sum := range sums {
			var name string
			var n uint64
			_, err := fmt.Sscanf(key, "%s %d", &name, &n)
			must.Succeed(t, err)
			if b.Home(name) == down {
				continue
			}
			data, err := other.Read(ctx, name, 0, n)
			if err != nil || crc32.ChecksumIEEE(data) != sum {
				t.Errorf("%s: %v, %d bytes", name, err, len(data))
			}
		}
	}
	const none = 99
	verify(none)
	b.Stop(0) // of two copies either is enough
	verify(0)
	for i := range b.Servers {
		b.Stop(i)
	}
	for i := range b.Servers {
		b.Start(i)
	}
	verify(none)
}

func TestWhoHasAnotherKeyIsNotLetIn(t *testing.T) {
	b := start(t, 1)
	other := b.Cluster
	other.KeyFile = servertest.Key(t, "z")
	other.Patience, other.Attempts = twochoice.Span(50*time.Millisecond), 3
	c, err := server.Connect(other)
	must.Succeed(t, err)
	defer c.Close()
	if _, err := c.Write(t.Context(), "o", 0, []byte("x")); err == nil {
		t.Error("a client with another key wrote")
	}
	// A client without a key is refused too.
	conn, err := tls.Dial("tcp", b.Agents[0], &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err = server.Greet(conn, server.Hello(protocol.Version, 0)); err == nil {
			t.Error("a client without a key was greeted")
		}
	}
}

func TestACancelledWriteIsUndecidedOrNotDone(t *testing.T) {
	b := start(t, 2)
	b.Stop(0)
	b.Stop(1)
	c := servertest.Client(t, b.Cluster)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Write(ctx, "o", 0, []byte("x"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write to nobody: %v", err)
	}
}

func TestReadyNamesWhoIsNotThere(t *testing.T) {
	b := start(t, 3)
	c := servertest.Client(t, b.Cluster)
	must.Succeed(t, c.Ready(t.Context()))
	b.Stop(2)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	must.Refuse(t, servertest.Client(t, b.Cluster).Ready(ctx), "agent 2 at "+b.Agents[2])
}

func TestKeyFilesThatOthersCanReadAreRefused(t *testing.T) {
	path := servertest.Key(t, "k")
	for want, change := range map[string]func() error{
		"allowed is 0600": func() error { return os.Chmod(path, 0o640) },
		"there is no key": func() error { return os.Remove(path) },
		"has 5 bytes":     func() error { return os.WriteFile(path, []byte("short"), 0o600) },
		"is not a file":   func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		_ = os.RemoveAll(path)
		must.Succeed(t, os.WriteFile(path, bytes.Repeat([]byte("k"), 32), 0o600))
		must.Succeed(t, change())
		_, err := server.LoadKey(path)
		must.Refuse(t, err, want)
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
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := server.LoadCluster(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: wanted %q, got %v", text, want, err)
		}
	}
}

// Agents with little memory get requests that do not fit at the moment, and requests that never
// fit.
func TestRequestsThatFindNoMemoryComeAgainAndThoseThatNeverWillAreRefused(t *testing.T) {
	b := start(t, 2, func(c *server.Cluster) {
		c.Memory, c.Attempts = server.LeastMemory, 1000
		c.Scheduler.Scheduler = twochoice.Uniform // half of the writes are redirected
	})
	c := servertest.Client(t, b.Cluster)
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
	if c.Refusals() == 0 {
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
	b := start(t, 1, func(c *server.Cluster) {
		c.Connections = 2
		c.Patience, c.Attempts = twochoice.Span(50*time.Millisecond), 3
	})
	var there []*server.Client
	for range 2 {
		there = append(there, servertest.Client(t, b.Cluster))
		must.Succeed(t, there[len(there)-1].Ready(t.Context()))
	}
	_, err := servertest.Client(t, b.Cluster).Write(t.Context(), "o", 0, []byte("x"))
	if err == nil || !strings.Contains(err.Error(), "has 2 connections") {
		t.Errorf("a third client: %v", err)
	}
	there[0].Close()
	must.Succeed(t, servertest.Client(t, b.Cluster).Ready(t.Context()))
	_, err = there[1].Write(t.Context(), "o", 0, []byte("x"))
	must.Succeed(t, err)
}

func TestTooFewDescriptorsForAnAgentAreNamed(t *testing.T) {
	c := server.DefaultCluster()
	c.Agents = make([]string, 10)
	if proven, unproven, err := c.Shares(1 << 16); err != nil || proven != c.Connections || unproven != server.MostUnproven {
		t.Errorf("%d and %d connections, %v", proven, unproven, err)
	}
	for _, descriptors := range []int{0, server.KeptDescriptors + 10, server.KeptDescriptors + 17} {
		if proven, unproven, err := c.Shares(descriptors); err == nil {
			t.Errorf("%d and %d connections of %d descriptors", proven, unproven, descriptors)
		}
	}
}

func TestAnOracleCountsWritesInTransit(t *testing.T) {
	b := start(t, 3)
	oracle := server.NewOracle(3)
	asking := b.Cluster
	asking.Scheduler = twochoice.Defaults(twochoice.Oracle)
	_, err := server.Connect(asking)
	must.Refuse(t, err, "Oracle.Connect")
	fixed := b.Cluster
	fixed.Scheduler = twochoice.Defaults(twochoice.Fixed)
	for _, c := range []server.Cluster{asking, fixed} {
		client, err := oracle.Connect(c)
		must.Succeed(t, err)
		defer client.Close()
		for i := range 9 {
			_, err := client.Write(t.Context(), fmt.Sprintf("%s/%d", c.Scheduler.Scheduler, i), 0, make([]byte, 2000))
			must.Succeed(t, err)
		}
	}
	for node := range twochoice.Server(3) {
		if left := oracle.Queues().Length(node); left != 0 {
			t.Errorf("%v bytes are on their way to agent %d when all is written", left, node)
		}
	}
	// The oracle avoids agents with bytes in transit.
	oracle.Queues().Add(0, 1<<20)
	oracle.Queues().Add(1, 1<<20)
	client, err := oracle.Connect(asking)
	must.Succeed(t, err)
	defer client.Close()
	for i := range 6 {
		w, err := client.Write(t.Context(), fmt.Sprintf("kept/%d", i), 0, make([]byte, 2000))
		if err != nil || w.Target != 2 {
			t.Errorf("write %d went to agent %d: %v", i, w.Target, err)
		}
	}
}

// A peer of another version does not wait for its welcome: messages after its hello are ignored.
func TestWhatARefusedPeerSaysIsNotHeard(t *testing.T) {
	b := start(t, 2)
	key, err := server.LoadKey(b.KeyFile)
	must.Succeed(t, err)
	prober, err := server.NewProber(b.Cluster)
	must.Succeed(t, err)
	defer prober.Close()
	put := protocol.Message{Kind: protocol.Put, Object: "o", Write: protocol.WriteID{Client: 9, Seq: 1}, To: 1, Node: 1,
		Data: []byte("x")}
	for want, version := range []uint32{7, protocol.Version} {
		conn, err := tls.Dial("tcp", b.Agents[1], key.Config())
		must.Succeed(t, err)
		_, err = conn.Write(append(server.Packet(server.Hello(version, 1), 0), server.Packet(put, 0)...))
		must.Succeed(t, err)
		heard := server.Count(conn, protocol.PutReply)
		_ = conn.Close()
		if stats, err := prober.Status(t.Context(), 1); err != nil || heard != want || stats.Fragments != want {
			t.Errorf("version %d: %d answers, %d fragments, %v", version, heard, stats.Fragments, err)
		}
	}
}

// An agent of another version may welcome us, or send an unreadable answer: clients must see it.
func TestAnAgentOfAnotherVersionIsNamed(t *testing.T) {
	newer := protocol.Message{Kind: protocol.Welcome, Version: protocol.Version + 1}
	for name, answer := range map[string][]byte{"welcome": newer.Append(nil), "unknown": {0xff, 0, 0}} {
		c := server.DefaultCluster()
		c.KeyFile = servertest.Key(t, "k")
		c.Patience, c.Attempts = twochoice.Span(100*time.Millisecond), 3
		key, err := server.LoadKey(c.KeyFile)
		must.Succeed(t, err)
		l, err := tls.Listen("tcp", "127.0.0.1:0", key.Config())
		must.Succeed(t, err)
		defer func() { _ = l.Close() }()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
				_ = conn.(*tls.Conn).CloseWrite()
			}
		}()
		c.Agents = []string{l.Addr().String()}
		client, err := server.Connect(c)
		must.Succeed(t, err)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for err == nil || !strings.Contains(err.Error(), fmt.Sprintf("does not speak version %d of the protocol", protocol.Version)) {
			if ctx.Err() != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_, err = client.Write(ctx, "o", 0, []byte("x"))
		}
	}
}
