package protocol

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/twochoice"
)

// bench is an agent with a disk that completes operations at once, unless held.
type bench struct {
	t     *testing.T
	a     *Agent
	held  bool
	ops   []DiskOp
	sends []Send
	data  map[WriteID][]byte
	base  map[string][]byte
	full  bool
}

func newAgent(t *testing.T, node Node, nodes int) *bench {
	t.Helper()
	detector := twochoice.NewDetector(twochoice.Defaults(twochoice.Both), twochoice.Server(node), 1)
	a, err := NewAgent(AgentConfig{Node: node, Nodes: nodes, Home: func(string) Node { return 0 }, Epoch: 7, Size: 1000,
		Copies: 1, Maintainer: twochoice.DefaultMaintainer(), Patience: time.Second, Orphans: time.Minute,
		Detector: detector}, nil, nil)
	must.Succeed(t, err)
	a.Pause(true)
	b := &bench{t: t, a: a, data: map[WriteID][]byte{}, base: map[string][]byte{}}
	b.run()
	return b
}

// do passes a message in and returns the messages sent.
func (b *bench) do(from Peer, m Message) []Send {
	b.t.Helper()
	b.a.Receive(0, from, m)
	return b.run()
}

func (b *bench) run() []Send {
	for {
		sends, ops := b.a.Take()
		b.sends = append(b.sends, sends...)
		b.ops = append(b.ops, ops...)
		if b.held || len(b.ops) == 0 {
			break
		}
		op := b.ops[0]
		b.ops = b.ops[1:]
		b.a.DiskDone(0, b.carryOut(op))
	}
	out := b.sends
	b.sends = nil
	return out
}

func (b *bench) carryOut(op DiskOp) DiskDone {
	done := DiskDone{Op: op.Op}
	switch op.Kind {
	case PutFragment:
		if b.full {
			done.Err = fmt.Errorf("put: %w", ErrFull)
		} else {
			b.data[op.Write] = op.Data
		}
	case GetFragment:
		done.Data = b.data[op.Write]
	case WriteLog:
		if b.full {
			done.Err = fmt.Errorf("log: %w", ErrFull)
		}
	case WriteBase:
		if b.full {
			done.Err = fmt.Errorf("base: %w", ErrFull)
		} else {
			b.base[op.Object] = op.Data
			done.Sums = SumsOf(op.From, op.Data)
		}
	case ReadBase:
		done.Data = make([]byte, op.To-op.From)
		copy(done.Data, b.base[op.Object])
	}
	return done
}

func one(t *testing.T, sends []Send) Message {
	t.Helper()
	if len(sends) != 1 {
		t.Fatalf("%d messages: %+v", len(sends), sends)
	}
	return sends[0].Message
}

const client = FirstClient + 1

func put(seq uint64, from uint64, text string) Message {
	return Message{Kind: Put, Call: 10 + seq, Object: "o", Write: WriteID{5, seq}, From: from,
		To: from + uint64(len(text)), Register: true, Low: 1, Data: []byte(text)}
}

func TestHelloRefusesAnotherVersionAndAnotherNodeByName(t *testing.T) {
	b := newAgent(t, 1, 3)
	for want, m := range map[string]Message{
		"":                        {Kind: Hello, Version: Version, Node: 1},
		"and its peer version 99": {Kind: Hello, Version: 99, Node: 1},
		"its peer expects agent 2 at this address": {Kind: Hello, Version: Version, Node: 2},
	} {
		got := one(t, b.do(client, m))
		if got.Kind != Welcome || (want == "") != (got.Code == OK) || !strings.Contains(got.Text, want) {
			t.Errorf("%+v: %+v", m, got)
		}
		if want != "" && !strings.HasPrefix(got.Err().Error(), "agent 1: ") {
			t.Errorf("who refuses is not named: %v", got.Err())
		}
	}
}

func TestWrongRequestsAreRefusedInASentence(t *testing.T) {
	b := newAgent(t, 0, 3)
	for want, m := range map[string]Message{
		"beyond object \"o\", which has 1000 bytes at most": {Kind: Put, Object: "o", From: 999, To: 1001, Data: []byte("xy")},
		"not as many as its range":                          {Kind: Put, Object: "o", To: 3, Data: []byte("xy")},
		"has 0 bytes, allowed":                              {Kind: Put, To: 2, Data: []byte("xy")},
		"has no bytes":                                      {Kind: Query, Object: "o", From: 4, To: 4},
		"beyond object \"o\", which has 0 bytes":            {Kind: Query, Object: "o", From: 4, To: 5},
		"two different ones that exist":                     {Kind: Register, Object: "o", To: 2, Targets: []Node{3}},
		"is not here":                                       {Kind: Get, Object: "o", To: 2},
		"is named 0000000000000005.0; each needs a name":    {Kind: Put, Object: "o", Write: WriteID{Client: 5}, To: 1, Data: []byte("x")},
		"is named 0000000000000000.1; each needs a name":    {Kind: Register, Object: "o", Write: WriteID{Seq: 1}, To: 1, Targets: []Node{1}},
	} {
		got := one(t, b.do(client, m))
		if got.Code == OK || !strings.Contains(got.Text, want) || strings.Contains(got.Text, "\n") {
			t.Errorf("wanted %q, got %+v", want, got)
		}
	}
	other := newAgent(t, 1, 3)
	got := one(t, other.do(client, Message{Kind: Query, Object: "o", To: 1}))
	if got.Code != Refused || !strings.Contains(got.Text, "at home on agent 0") {
		t.Errorf("%+v", got)
	}
}

func TestAFullDiskRefusesAndHarmsNothing(t *testing.T) {
	b := newAgent(t, 0, 3)
	one(t, b.do(client, put(1, 0, "abc")))
	b.full = true
	if got := one(t, b.do(client, put(2, 0, "xyz"))); got.Code != Full || !strings.Contains(got.Text, "no space left") {
		t.Errorf("%+v", got)
	}
	register := Message{Kind: Register, Object: "o", Write: WriteID{5, 3}, To: 3, Targets: []Node{1}, Low: 1}
	if got := one(t, b.do(client, register)); got.Code != Full || !strings.Contains(got.Text, "free space") {
		t.Errorf("%+v", got)
	}
	b.full = false
	if got := one(t, b.do(client, put(2, 0, "xyz"))); got.Code != OK {
		t.Errorf("%+v", got)
	}
	if got := one(t, b.do(client, register)); got.Code != OK || b.a.Failed() != nil {
		t.Errorf("%+v %v", got, b.a.Failed())
	}
}

// Requests about unwritten objects must not use memory.
func TestObjectsThatThereAreNotTakeNoMemory(t *testing.T) {
	b := newAgent(t, 0, 3)
	for i := range 100 {
		name := fmt.Sprintf("nothing/%d", i)
		one(t, b.do(client, Message{Kind: Query, Object: name, To: 1}))
		one(t, b.do(client, Message{Kind: GetBase, Object: name, To: 1, Epoch: 7}))
	}
	if n := len(b.a.book.objects); n != 0 {
		t.Errorf("the home remembers %d objects", n)
	}
}

// A base written since the reader's query must not be read, even after more writes than the home
// remembers.
func TestABaseThatWasWrittenSinceIsNotRead(t *testing.T) {
	b := newAgent(t, 0, 3)
	one(t, b.do(client, put(1, 0, "abc")))
	o := b.a.book.object("o")
	read := func(gen, from uint64) Code {
		t.Helper()
		return one(t, b.do(client, Message{Kind: GetBase, Object: "o", From: from, To: from + 3, Epoch: 7, Gen: gen})).Code
	}
	o.writesBase(0, 10)
	for range rememberedBases {
		for _, c := range []struct {
			gen, from uint64
			want      Code
		}{{0, 9, Changed}, {1, 9, OK}, {1, 20, map[bool]Code{true: Changed}[o.gen > 1]}, {o.gen, 20, OK}, {o.gen + 1, 9, Changed}} {
			if got := read(c.gen, c.from); got != c.want {
				t.Errorf("generation %d of %d, byte %d: code %d", c.gen, o.gen, c.from, got)
			}
		}
		o.writesBase(20, 30)
	}
	if got := read(0, 40); got != Changed {
		t.Errorf("what was written before %d others is taken for remembered: code %d", rememberedBases, got)
	}
	if got := read(1, 40); got != OK {
		t.Errorf("code %d", got)
	}
}

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
	must.Succeed(t, err)
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
	_, err = NewAgent(config, nil, records)
	must.Refuse(t, err, "in a cluster of 3 agents")
	b.held = true
	register.Write.Seq++
	b.do(client, register)
	if n := len(b.ops[0].Records); n != 1 {
		t.Errorf("the log records the cluster's size %d times more", n-1)
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
		t.Errorf("the answer has bytes of a base that was read while it was written: %+v", got)
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

// restarted returns a restarted agent of the same node with these fragments and records.
func (b *bench) restarted(fragments []Fragment, records ...Record) *bench {
	b.t.Helper()
	config := b.a.config
	config.Epoch++
	a, err := NewAgent(config, fragments, records)
	must.Succeed(b.t, err)
	a.Pause(true)
	out := &bench{t: b.t, a: a, data: b.data, base: b.base}
	out.run()
	return out
}

// at advances time and returns the messages sent.
func (b *bench) at(now time.Duration) []Send {
	b.a.Tick(now)
	return b.run()
}

func TestNothingIsGivenUpAfterACutBeforeAllFragmentsAreReported(t *testing.T) {
	b := newAgent(t, 0, 3)
	mine := Fragment{Object: "o", Write: WriteID{9, 1}, To: 3}
	b = b.restarted([]Fragment{mine}, append(b.a.book.snapshot(), CutRecord())...)
	fence := Message{Kind: Fence, Object: "o", Write: WriteID{9, 2}, To: 3, Node: 1}
	if sends := b.do(1, fence); len(sends) > 0 {
		t.Fatalf("before the first question: %+v", sends)
	}
	asked := b.at(time.Second)
	if len(asked) != 2 || asked[0].Kind != Report || asked[0].Node != 0 || asked[0].To == asked[1].To {
		t.Fatalf("%+v", asked)
	}
	reply := Message{Kind: ReportReply, Epoch: asked[0].Epoch, Pieces: []Piece{{To: 3, Write: WriteID{9, 2}}}, Needed: true}
	more := one(t, b.do(1, reply))
	if more.Kind != Report || more.Write != (WriteID{9, 2}) {
		t.Fatalf("it does not ask for the rest: %+v", more)
	}
	// The recount continues after a snapshot and after an agent's death.
	b = b.restarted([]Fragment{mine}, b.a.book.snapshot()...)
	if asked = b.at(2 * time.Second); len(asked) != 2 {
		t.Fatalf("after a restart: %+v", asked)
	}
	reply.Needed = false
	b.do(2, reply)
	if b.a.book.cut != true || len(b.do(1, fence)) > 0 {
		t.Fatal("what was asked in another life is answered in this one")
	}
	reply.Epoch = asked[0].Epoch
	for _, from := range []Peer{2, 2, client} {
		b.do(from, reply)
	}
	if !b.a.book.cut || len(b.do(1, fence)) > 0 {
		t.Fatal("not all agents have reported")
	}
	if again := b.at(4 * time.Second); len(again) != 1 || again[0].To != 1 {
		t.Fatalf("an agent that does not answer is asked again: %+v", again)
	}
	if now := b.at(time.Hour); len(now) != 1 || b.a.Stats().Fragments != 1 { // old enough, except for the cut
		t.Fatalf("%+v, %+v", now, b.a.Stats())
	}
	b.do(1, reply)
	notices := b.a.Notices()
	if b.a.book.cut || len(notices) != 1 || !strings.Contains(notices[0], "0000000000000009.1") {
		t.Fatalf("%q", notices)
	}
	if got := one(t, b.do(1, fence)); got.Kind != FenceReply || got.Needed {
		t.Errorf("afterwards: %+v", got)
	}
	if b.at(2 * time.Hour); b.a.Stats().Fragments != 0 {
		t.Errorf("an orphan stays: %+v", b.a.Stats())
	}
}

func TestAStoreReportsTheFragmentsOfAHome(t *testing.T) {
	b := newAgent(t, 1, 3)
	var fragments []Fragment
	for i := range uint64(mostReported + 10) {
		fragments = append(fragments, Fragment{Object: "o", Write: WriteID{5, i + 1}, To: 1})
	}
	fragments = append(fragments, Fragment{Object: "p", Write: WriteID{4, 1}, Node: 2, To: 1},
		Fragment{Write: WriteID{6, 1}, Damage: "the fragment is damaged"})
	b = b.restarted(fragments, b.a.book.snapshot()...)
	ask := Message{Kind: Report, Call: 3, Node: 0, Epoch: 77}
	first := one(t, b.do(Peer(0), ask))
	ask.Write = first.Pieces[len(first.Pieces)-1].Write
	second := one(t, b.do(Peer(0), ask))
	if first.Epoch != 77 || !first.Needed || second.Needed || second.Write != ask.Write {
		t.Errorf("%d and then %d: %v, %v", len(first.Pieces), len(second.Pieces), first.Needed, second.Needed)
	}
	all := append(first.Pieces, second.Pieces...)
	if len(all) != mostReported+11 || all[0].Write != (WriteID{5, 1}) || all[len(all)-1].Write != (WriteID{6, 1}) ||
		!slices.IsSortedFunc(all, func(x, y Piece) int { return byName(x.Write, y.Write) }) {
		t.Errorf("%d fragments", len(all))
	}
}

// A fragment with a damaged header is named to readers, kept by the sweep, and replaceable.
func TestAFragmentWithADamagedHeaderIsNamed(t *testing.T) {
	damaged := Fragment{Write: WriteID{5, 1}, Damage: "the fragment f.5.1 is damaged"}
	begin := func() *bench {
		b := newAgent(t, 1, 3)
		return b.restarted([]Fragment{damaged}, b.a.book.snapshot()...)
	}
	get := Message{Kind: Get, Object: "o", Write: damaged.Write, To: 3}
	b := begin()
	if got := one(t, b.do(client, get)); got.Code != Failed || !strings.Contains(got.Text, damaged.Damage) ||
		!strings.Contains(got.Text, `"o"`) {
		t.Errorf("%+v", got)
	}
	if sends := append(b.at(time.Hour), b.at(2*time.Hour)...); len(sends) > 0 || b.a.Stats().Fragments != 1 {
		t.Errorf("the sweep asks %+v", sends)
	}
	m := put(1, 0, "abc")
	m.Register = false
	if got := one(t, b.do(client, m)); got.Code != OK || b.a.Stats().Fragments != 1 {
		t.Errorf("%+v, %+v", got, b.a.Stats())
	}
	if got := one(t, b.do(client, get)); got.Code != OK || string(got.Data) != "abc" {
		t.Errorf("it was written anew: %+v", got)
	}
	b = begin()
	b.do(Peer(0), Message{Kind: Drop, Object: "o", Write: damaged.Write})
	if got := one(t, b.do(client, get)); got.Code != Gone || b.a.Stats().Fragments != 0 {
		t.Errorf("it was dropped: %+v", got)
	}
}
