package protocol

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/twochoice"
)

// bench is an agent with a disk that completes operations at once, unless held.
type bench struct {
	t      *testing.T
	a      *Agent
	held   bool
	ops    []DiskOp
	sends  []Send
	data   map[WriteID][]byte
	base   map[string][]byte
	full   bool
	placed []Ordered
}

func newAgent(t *testing.T, node Node, nodes int) *bench {
	t.Helper()
	detector, err := twochoice.NewDetector(twochoice.Defaults(twochoice.Both), twochoice.Server(node), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAgent(AgentConfig{Node: node, Nodes: nodes, Home: func(string) Node { return 0 }, Epoch: 7, Size: 1000,
		Copies: 1, Maintainer: twochoice.DefaultMaintainer(), Patience: time.Second, Orphans: time.Minute,
		Detector: detector}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
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
		sends, ops, ordered := b.a.Take()
		b.sends = append(b.sends, sends...)
		b.ops = append(b.ops, ops...)
		b.placed = append(b.placed, ordered...)
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

func TestAWriteIsAcknowledgedOnceItIsDurableAndDoneOnce(t *testing.T) {
	b := newAgent(t, 0, 3)
	b.held = true
	if sends := b.do(client, put(1, 0, "abc")); len(sends) > 0 || len(b.ops) != 1 || b.ops[0].Kind != PutFragment {
		t.Fatalf("before the fragment is durable: %+v %+v", sends, b.ops)
	}
	b.do(client, put(1, 0, "abc")) // a duplicate
	op := b.ops[0]
	b.ops = nil
	b.a.DiskDone(0, b.carryOut(op))
	if sends := b.run(); len(sends) > 0 || len(b.ops) != 1 || b.ops[0].Kind != WriteLog {
		t.Fatalf("before the record is durable: %+v %+v", sends, b.ops)
	}
	query := Message{Kind: Query, Call: 3, Object: "o", To: 3}
	if got := one(t, b.do(client, query)); got.Code != Refused {
		t.Errorf("a reader sees what is not durable: %+v", got)
	}
	b.held = false
	sends := b.run()
	if len(sends) != 2 || sends[0].Kind != RegisterReply || sends[0].Stamp != sends[1].Stamp || len(b.placed) != 1 {
		t.Errorf("%+v, %d ordered", sends, len(b.placed))
	}
	if got := one(t, b.do(client, query)); len(got.Pieces) != 1 || got.Pieces[0].Write != (WriteID{5, 1}) {
		t.Errorf("%+v", got)
	}
}

func TestARepeatedRequestIsAnsweredAndNotDoneAgain(t *testing.T) {
	b := newAgent(t, 0, 3)
	first := one(t, b.do(client, put(1, 0, "abc")))
	if first.Kind != RegisterReply || first.Code != OK || first.Stamp == 0 {
		t.Fatalf("%+v", first)
	}
	later := one(t, b.do(client, put(2, 1, "x")))
	again := one(t, b.do(client, put(1, 0, "abc")))
	if again.Stamp != first.Stamp || again.Call != first.Call || len(b.placed) != 2 {
		t.Errorf("first %+v, again %+v, %d ordered", first, again, len(b.placed))
	}
	got := one(t, b.do(client, Message{Kind: Query, Object: "o", To: 3}))
	if len(got.Pieces) != 3 || got.Pieces[1].Write.Seq != 2 || got.Stamp != later.Stamp || got.Size != 3 {
		t.Errorf("%+v", got)
	}
	// The client wants nothing below 3: late requests are neither done nor answered.
	m := put(3, 0, "z")
	m.Low = 3
	one(t, b.do(client, m))
	if sends := b.do(client, put(1, 0, "abc")); len(sends) != 0 || len(b.placed) != 3 {
		t.Errorf("a request of the past: %+v, %d ordered", sends, len(b.placed))
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

func TestAFailedSyncStopsTheAgent(t *testing.T) {
	b := newAgent(t, 0, 3)
	b.held = true
	b.do(client, put(1, 0, "abc"))
	b.a.DiskDone(0, DiskDone{Op: b.ops[0].Op, Err: fmt.Errorf("input/output error")})
	if b.a.Failed() == nil {
		t.Fatal("it goes on")
	}
	if sends := b.do(client, put(2, 0, "abc")); len(sends) != 0 {
		t.Errorf("it answers: %+v", sends)
	}
}

func TestAFenceMakesItFinalThatAWriteIsNotOrdered(t *testing.T) {
	b := newAgent(t, 0, 3)
	one(t, b.do(client, put(1, 0, "abc")))
	fence := func(seq uint64, node Node) Message {
		t.Helper()
		return one(t, b.do(Peer(2), Message{Kind: Fence, Object: "o", Write: WriteID{5, seq}, To: 3, Node: node}))
	}
	if got := fence(1, 0); !got.Needed {
		t.Error("a fragment that is needed may go")
	}
	if got := fence(1, 2); got.Needed {
		t.Error("a fragment is needed where no record says that it is")
	}
	if got := fence(2, 2); got.Needed {
		t.Error("a fragment that nobody registered is needed")
	}
	register := Message{Kind: Register, Object: "o", Write: WriteID{5, 2}, To: 3, Targets: []Node{2}, Low: 1}
	if got := one(t, b.do(client, register)); got.Code != Fenced {
		t.Errorf("it was ordered after the fence: %+v", got)
	}
}

func TestASnapshotHoldsAllThatTheBookKnows(t *testing.T) {
	b := newAgent(t, 0, 3)
	for seq := uint64(1); seq < 20; seq++ {
		m := put(seq, seq*5, strings.Repeat("x", 12))
		m.Low = max(4, seq) - 3
		one(t, b.do(client, m))
	}
	b.do(Peer(2), Message{Kind: Fence, Object: "o", Write: WriteID{9, 9}, To: 3, Node: 2})
	var records []Record
	for _, r := range b.a.book.snapshot() {
		again, err := RecordOf(r.Entry())
		if err != nil || again != r {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
		records = append(records, again)
	}
	other, err := NewAgent(b.a.config, nil, records)
	if err != nil {
		t.Fatal(err)
	}
	if a, o := fmt.Sprintf("%+v", b.a.book.snapshot()), fmt.Sprintf("%+v", other.book.snapshot()); a != o {
		t.Errorf("recovered\n%s\nof\n%s", o, a)
	}
	query := Message{Kind: Query, Object: "o", To: 100}
	b.a.Receive(0, client, query)
	other.Receive(0, client, query)
	mine, _, _ := b.a.Take()
	its, _, _ := other.Take()
	if a, o := fmt.Sprintf("%+v", mine), fmt.Sprintf("%+v", its); a != o {
		t.Errorf("it answers\n%s\ninstead of\n%s", o, a)
	}
}

func TestALogOfALargerClusterIsRefused(t *testing.T) {
	b := newAgent(t, 0, 3)
	config := b.a.config
	config.Nodes = 4
	if _, err := NewAgent(config, nil, b.a.book.snapshot()); err == nil ||
		!strings.Contains(err.Error(), "in a cluster of 3 agents, and this one has 4") {
		t.Error(err)
	}
}

func TestAnAgentsQuestionsAreNumberedAnewAfterARestart(t *testing.T) {
	b := newAgent(t, 0, 3)
	register := Message{Kind: Register, Object: "o", Write: WriteID{5, 1}, To: 3, Targets: []Node{1}, Low: 1}
	one(t, b.do(client, register))
	seen := map[uint64]bool{}
	for epoch := range uint64(3) {
		config := b.a.config
		config.Epoch = epoch + 8
		a, err := NewAgent(config, nil, b.a.book.snapshot())
		if err != nil {
			t.Fatal(err)
		}
		a.Tick(0)
		sends, _, _ := a.Take()
		get := one(t, sends)
		if get.Kind != Get || seen[get.Call] {
			t.Errorf("%+v", get)
		}
		seen[get.Call] = true
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

// A write without its own name cannot be done at most once.
func TestAWriteWithoutANameIsRefused(t *testing.T) {
	b := newAgent(t, 0, 3)
	for _, w := range []WriteID{{}, {Client: 5}, {Seq: 1}} {
		for _, m := range []Message{put(1, 0, "x"), {Kind: Register, Object: "o", To: 1, Targets: []Node{1}}} {
			m.Write = w
			if answer := one(t, b.do(client, m)); answer.Code != Refused || !strings.Contains(answer.Text, "name of its own") {
				t.Errorf("%v of %v: %+v", m.Kind, w, answer)
			}
		}
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
