package protocol

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// restarted returns a restarted agent of the same node with these fragments and records.
func (b *bench) restarted(fragments []Fragment, records ...Record) *bench {
	b.t.Helper()
	config := b.a.config
	config.Epoch++
	a, err := NewAgent(config, fragments, records)
	if err != nil {
		b.t.Fatal(err)
	}
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
