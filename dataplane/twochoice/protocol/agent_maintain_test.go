package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A disk that is full or unreadable must not be asked at each tick: each pull would load another
// node's disk and the network in vain.
func TestAMaintainerRestsWhenADiskRefuses(t *testing.T) {
	register := Message{Kind: Register, Object: "o", Write: WriteID{5, 1}, To: 3, Targets: []Node{1}, Low: 1}
	for what, refuse := range map[string]func(b *bench, get Message){
		"no room at home": func(b *bench, get Message) {
			b.full = true
			b.do(1, Message{Kind: Data, Call: get.Call, Data: []byte("abc")})
			b.full = false
		},
		"the fragment is damaged": func(b *bench, get Message) {
			b.do(1, Message{Kind: Data, Call: get.Call, Code: Failed, Text: "damaged"})
		},
	} {
		b := newAgent(t, 0, 3)
		one(t, b.do(client, register))
		b.a.Pause(false)
		pulls := func(now time.Duration) []Send {
			b.a.Tick(now)
			return b.run()
		}
		refuse(b, one(t, pulls(time.Second)))
		for now := time.Second; now < 2*time.Second; now += 50 * time.Millisecond {
			if sends := pulls(now); len(sends) > 0 {
				t.Fatalf("%s: it pulls again after %v: %+v", what, now-time.Second, sends)
			}
		}
		get := one(t, pulls(2*time.Second))
		sends := b.do(1, Message{Kind: Data, Call: get.Call, Data: []byte("abc")})
		if drop := one(t, sends); drop.Kind != Drop || b.a.Stats().Entries != 0 || string(b.base["o"]) != "abc" {
			t.Errorf("%s: it is not at home: %+v, %+v", what, drop, b.a.Stats())
		}
		if n := len(b.a.book.places); n != 0 {
			t.Errorf("%s: %d places of no entry are remembered", what, n)
		}
	}
}

// A busy node, or one that dropped its fragment meanwhile, must not block other pulls.
func TestAMaintainerGoesOnWhenANodeIsBusy(t *testing.T) {
	b := newAgent(t, 0, 3)
	for node := range Node(2) {
		m := Message{Kind: Register, Object: fmt.Sprint(node), Write: WriteID{5, uint64(node) + 1}, To: 3,
			Targets: []Node{node + 1}, Low: 1}
		one(t, b.do(client, m))
	}
	b.a.Pause(false)
	b.a.Tick(time.Second)
	for _, s := range b.run() {
		b.do(s.To, Message{Kind: Data, Call: s.Call, Code: map[Peer]Code{1: Busy, 2: Gone}[s.To]})
	}
	b.a.Tick(time.Second + 50*time.Millisecond)
	if get := b.run(); len(get) != 1 || get[0].To != 2 {
		t.Errorf("%+v", get)
	}
}

// Every log must record its cluster's size: in another cluster objects have other homes. If the
// record finds no space at the start, it must be written later.
func TestNothingIsOrderedInALogWithoutItsCluster(t *testing.T) {
	b := newAgent(t, 0, 3)
	config := b.a.config
	a, err := NewAgent(config, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b = &bench{t: t, a: a, data: map[WriteID][]byte{}, base: map[string][]byte{}, full: true}
	b.run()
	b.full, b.held = false, true
	register := Message{Kind: Register, Object: "o", Write: WriteID{5, 1}, To: 3, Targets: []Node{1}, Low: 1}
	b.do(client, register)
	if len(b.ops) != 1 || b.ops[0].Kind != WriteLog {
		t.Fatalf("%+v", b.ops)
	}
	records := b.ops[0].Records
	b.held = false
	if got := one(t, b.run()); got.Code != OK {
		t.Fatalf("%+v", got)
	}
	config.Nodes = 4
	if _, err := NewAgent(config, nil, records); err == nil || !strings.Contains(err.Error(), "in a cluster of 3 agents") {
		t.Errorf("%+v: %v", records, err)
	}
	b.held = true
	register.Write.Seq++
	b.do(client, register)
	if n := len(b.ops[0].Records); n != 1 {
		t.Errorf("the cluster's size is told %d times more", n-1)
	}
}

// A reader that queried before a pull must not see the pull's write to the base, not even in part.
// This holds for reads during the write and for reads that began before.
func TestABaseThatIsBeingWrittenIsNotRead(t *testing.T) {
	b := newAgent(t, 0, 3)
	register := Message{Kind: Register, Object: "o", Write: WriteID{5, 1}, To: 6, Targets: []Node{1}, Low: 1}
	one(t, b.do(client, register))
	b.a.Pause(false)
	b.a.Tick(time.Second)
	get := one(t, b.run())
	b.held = true
	read := Message{Kind: GetBase, Object: "o", From: 2, To: 4, Epoch: 7, Gen: 0}
	b.do(client, read) // its disk operation starts here
	b.do(1, Message{Kind: Data, Call: get.Call, Data: []byte("abcdef")})
	if len(b.ops) != 2 || b.ops[0].Kind != ReadBase || b.ops[1].Kind != WriteBase {
		t.Fatalf("%+v", b.ops)
	}
	if got := one(t, b.do(client, read)); got.Code != Changed {
		t.Errorf("a base is read while it is written: %+v", got)
	}
	b.a.DiskDone(time.Second, DiskDone{Op: b.ops[0].Op, Data: []byte("cx")})
	b.ops = b.ops[1:]
	if got := one(t, b.run()); got.Code != Changed {
		t.Errorf("what was read of a base while it was written is told: %+v", got)
	}
	read.From, read.To = 6, 8 // nothing is written there
	b.held = false
	b.run()
	if got := one(t, b.do(client, read)); got.Code != OK {
		t.Errorf("%+v", got)
	}
}

// Data next to a range that is being brought home stays verifiable, even if a crash leaves the
// range half-written. A sum that covers only redirected bytes must not delay the pull.
func TestWhatIsNextToAPullCanBeVerified(t *testing.T) {
	b := newAgent(t, 0, 3)
	home := func(seq, from uint64, text string) {
		t.Helper()
		m := Message{Kind: Register, Object: "o", Write: WriteID{5, seq}, From: from, To: from + uint64(len(text)),
			Targets: []Node{1}, Low: 1}
		one(t, b.do(client, m))
		b.a.Pause(false)
		b.a.Tick(time.Duration(seq) * time.Second)
		for _, s := range b.run() {
			if s.Kind == Get {
				b.do(1, Message{Kind: Data, Call: s.Call, Data: []byte(text)})
			}
		}
		b.a.Pause(true)
	}
	read := func(from, to uint64) []Sum { return b.a.sums("o", from, to) }
	home(1, 10, "abcdefghij")
	if got := read(0, 100); !slices.Equal(got, SumsOf(10, []byte("abcdefghij"))) {
		t.Fatalf("%v", got)
	}
	b.base["o"] = []byte("abcdefghij") // the split reads this
	home(2, 14, "XY")
	want := slices.Concat(SumsOf(10, []byte("abcd")), SumsOf(14, []byte("XY")), SumsOf(16, []byte("ghij")))
	if got := read(0, 100); !slices.Equal(got, want) || b.a.Stats().Entries != 0 {
		t.Fatalf("%v instead of %v, %+v", got, want, b.a.Stats())
	}
	if got := b.restarted(nil, b.a.book.snapshot()...).a.sums("o", 0, 100); !slices.Equal(got, want) {
		t.Errorf("after a restart: %v", got)
	}
	// All of abcd is redirected, so nobody needs its sum when a part comes home.
	one(t, b.do(client, Message{Kind: Register, Object: "o", Write: WriteID{5, 3}, From: 10, To: 14, Targets: []Node{2}, Low: 1}))
	b.base["o"] = []byte("rubbish")
	home(4, 12, "uv")
	if got := read(0, 14); !slices.Equal(got, SumsOf(12, []byte("uv"))) {
		t.Errorf("%v", got)
	}
}
