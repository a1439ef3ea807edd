// Package storetest checks every backend of an object server against the same contract, the
// promises of protocol.DiskOp: a folder, a pool in memory and a pool of a real Ceph.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
)

// Node is the agent with the place under test.
const Node = 3

// Disk is an opened place.
type Disk interface {
	Do(op protocol.DiskOp) protocol.DiskDone
	// Close ends the agent cleanly.
	Close() error
	// Abandon releases the place as the death of the process does.
	Abandon() error
}

// Open reopens a place that was closed or abandoned.
type Open func() (Disk, filestore.Found, error)

// Run tests places; `fresh` makes an empty one.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	for name, test := range map[string]func(*testing.T, *place){
		"any part of a fragment is read back": parts,
		"a fragment is written again":         again,
		"all is found as it was left":         found,
		"a base is what was last written":     base,
		"the log is replaced":                 replaced,
		"many at a time":                      many,
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			p := &place{t: t, open: fresh(t)}
			p.reopen()
			test(t, p)
			if err := p.disk.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

type place struct {
	t     *testing.T
	open  Open
	disk  Disk
	found filestore.Found
}

func (p *place) reopen() {
	p.t.Helper()
	var err error
	if p.disk, p.found, err = p.open(); err != nil {
		p.t.Fatal(err)
	}
}

// closed closes and reopens; dead abandons and reopens.
func (p *place) closed() {
	p.t.Helper()
	must.Succeed(p.t, p.disk.Close())
	p.reopen()
}

func (p *place) dead() {
	p.t.Helper()
	must.Succeed(p.t, p.disk.Abandon())
	p.reopen()
}

func (p *place) must(op protocol.DiskOp) []byte {
	p.t.Helper()
	return Must(p.t, p.disk, op)
}

// Must carries out an operation, which must succeed, and returns what was read.
func Must(t testing.TB, d interface {
	Do(op protocol.DiskOp) protocol.DiskDone
}, op protocol.DiskOp) []byte {
	t.Helper()
	done := d.Do(op)
	if done.Err != nil {
		t.Fatal(done.Err)
	}
	return done.Data
}

// Bytes returns random bytes.
func Bytes(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(rand.Uint32())
	}
	return out
}

// Name is the write of the tests' fragment.
var Name = protocol.WriteID{Client: 0xabc, Seq: 17}

const object = "run/5"

// Put writes a fragment of an object's bytes from 1000 on.
func Put(w protocol.WriteID, data []byte) protocol.DiskOp {
	return protocol.DiskOp{Kind: protocol.PutFragment, Object: object, Write: w, Node: 2, From: 1000,
		To: 1000 + uint64(len(data)), Data: data}
}

// Get reads bytes of that fragment, counted from its start.
func Get(w protocol.WriteID, from, to int) protocol.DiskOp {
	return protocol.DiskOp{Kind: protocol.GetFragment, Object: object, Write: w, From: 1000 + uint64(from),
		To: 1000 + uint64(to)}
}

func drop(w protocol.WriteID) protocol.DiskOp {
	return protocol.DiskOp{Kind: protocol.DropFragment, Object: object, Write: w}
}

func parts(t *testing.T, p *place) {
	if done := p.disk.Do(Get(Name, 0, 1)); !errors.Is(done.Err, protocol.ErrGone) {
		t.Fatalf("a fragment that never was: %v", done.Err)
	}
	for _, n := range []int{1, 100, 65535, 65536, 65537, 200_000} {
		data := Bytes(n)
		p.must(Put(Name, data))
		for i := range 12 {
			from := rand.IntN(n)
			to := from + 1 + rand.IntN(n-from)
			if i == 0 {
				from, to = 0, n
			}
			if i == 6 {
				p.dead() // then only the stored state is known
			}
			if got := p.must(Get(Name, from, to)); !bytes.Equal(got, data[from:to]) {
				t.Fatalf("%d bytes: %d to %d differ", n, from, to)
			}
		}
		if done := p.disk.Do(Get(Name, n-1, n+1)); !errors.Is(done.Err, protocol.ErrDamaged) {
			t.Fatalf("beyond a fragment: %v", done.Err)
		}
		p.must(drop(Name))
		p.must(drop(Name))
		if done := p.disk.Do(Get(Name, 0, 1)); !errors.Is(done.Err, protocol.ErrGone) {
			t.Fatalf("a dropped fragment: %v", done.Err)
		}
	}
}

func again(t *testing.T, p *place) {
	data := Bytes(70_000)
	p.must(Put(Name, data))
	p.must(Put(Name, data))
	p.dead()
	p.must(Put(Name, data))
	if !bytes.Equal(p.must(Get(Name, 0, len(data))), data) {
		t.Error("it is not what was written")
	}
	p.closed()
	if len(p.found.Fragments) != 1 {
		t.Errorf("there are %d fragments", len(p.found.Fragments))
	}
}

var records = []protocol.Record{
	{Change: twochoice.Record{Kind: twochoice.Redirected, Object: object, Range: twochoice.Range{Start: 1, End: 9},
		Receipt: 1, Time: 5, Location: twochoice.Location{Server: 1, Fragment: 1}},
		Note: protocol.Note{Kind: protocol.OfWrite, Write: Name, Second: 3}},
	{Note: protocol.Note{Kind: protocol.OfFence, Write: Name}},
	{Change: twochoice.Record{Object: object}, Note: protocol.Note{Kind: protocol.ObjectIs, Value: 9, Sums: "any"}},
	{Change: twochoice.Record{Receipt: 8, Time: 6}, Note: protocol.Note{Kind: protocol.LastIs}},
}

func logged(r ...protocol.Record) protocol.DiskOp {
	return protocol.DiskOp{Kind: protocol.WriteLog, Records: r}
}

func (p *place) holds(want []protocol.Record) {
	p.t.Helper()
	if !slices.Equal(p.found.Records, want) {
		p.t.Fatalf("%d records were found and %d written", len(p.found.Records), len(want))
	}
}

func found(t *testing.T, p *place) {
	if len(p.found.Records) != 0 || len(p.found.Fragments) != 0 {
		t.Fatalf("an empty place has %+v", p.found)
	}
	p.must(Put(Name, []byte("bytes")))
	p.must(logged(records[:1]...))
	p.dead()
	p.holds(records[:1])
	p.must(logged(records[1:]...))
	for _, again := range []func(){p.dead, p.closed, p.dead} {
		again()
		p.holds(records)
		want := protocol.Fragment{Object: object, Write: Name, Node: 2, From: 1000, To: 1005}
		if len(p.found.Fragments) != 1 || p.found.Fragments[0] != want {
			t.Fatalf("fragments %+v", p.found.Fragments)
		}
		if p.found.Recovery.TornBytes != 0 {
			t.Fatalf("what was durable is torn: %+v", p.found.Recovery)
		}
	}
}

// base compares ranges of a base with a model; ranges cross the borders of pieces.
func base(t *testing.T, p *place) {
	const border = 4 << 20
	model := make([]byte, 64<<10)
	start := uint64(border - len(model)/2)
	for i := range 12 {
		from := rand.IntN(len(model) - 1)
		data := Bytes(1 + rand.IntN(len(model)-from))
		copy(model[from:], data)
		p.must(protocol.DiskOp{Kind: protocol.WriteBase, Object: object, From: start + uint64(from),
			To: start + uint64(from+len(data)), Data: data})
		if i%4 == 3 {
			p.dead()
		}
	}
	read := func(object string, from, n uint64, sums ...protocol.Sum) []byte {
		return p.must(protocol.DiskOp{Kind: protocol.ReadBase, Object: object, From: from, To: from + n, Sums: sums})
	}
	if !bytes.Equal(read(object, start, uint64(len(model)), protocol.SumsOf(start, model)...), model) {
		t.Error("the base is not what was written")
	}
	if !bytes.Equal(read(object, 10, 5), make([]byte, 5)) ||
		!bytes.Equal(read(object, 3*border, 5), make([]byte, 5)) || !bytes.Equal(read("another", 0, 5), make([]byte, 5)) {
		t.Error("what nobody wrote is not zeros")
	}
}

func replaced(t *testing.T, p *place) {
	var all []protocol.Record
	add := func(n int) {
		for range n {
			r := protocol.Record{Note: protocol.Note{Kind: protocol.OfFence,
				Write: protocol.WriteID{Client: 1, Seq: uint64(len(all)) + 1}}}
			p.must(logged(r))
			all = append(all, r)
		}
	}
	add(5)
	p.must(protocol.DiskOp{Kind: protocol.CompactLog, Records: all[3:]})
	all = slices.Clone(all[3:])
	add(2)
	p.dead()
	p.holds(all)
	var long []protocol.Record // of more than one piece of the log
	for i := range 90_000 {
		long = append(long, protocol.Record{Note: protocol.Note{Kind: protocol.OfFence,
			Write: protocol.WriteID{Client: 2, Seq: uint64(i) + 1}}})
	}
	p.must(protocol.DiskOp{Kind: protocol.CompactLog, Records: long})
	all = long
	add(2)
	p.closed()
	p.holds(all)
	p.must(protocol.DiskOp{Kind: protocol.CompactLog, Records: nil})
	p.dead()
	p.holds(nil)
}

func many(t *testing.T, p *place) {
	var all sync.WaitGroup
	errs := make([]error, 8)
	data := Bytes(100_000)
	for i := range errs {
		all.Go(func() {
			for j := range 4 {
				w := protocol.WriteID{Client: uint64(i + 1), Seq: uint64(j + 1)}
				done := p.disk.Do(Put(w, data[i:]))
				if done.Err == nil {
					done = p.disk.Do(Get(w, j, 90_000))
					if done.Err == nil && !bytes.Equal(done.Data, data[i+j:i+90_000]) {
						done.Err = fmt.Errorf("%v differs", w)
					}
				}
				if done.Err == nil && j%2 == 0 {
					done = p.disk.Do(drop(w))
				}
				errs[i] = errors.Join(errs[i], done.Err)
			}
		})
	}
	all.Wait()
	must.Succeed(t, errs...)
	p.dead()
	if len(p.found.Fragments) != 16 {
		t.Errorf("%d fragments are left", len(p.found.Fragments))
	}
}
