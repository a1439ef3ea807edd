package redirectlog

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"hotbed/dataplane/twochoice"
)

const (
	file = "redirect.log"
	size = 1 << 20
)

var objects = []twochoice.Object{"a", "rbd_data.1", "c"}

func open(d *disk, o Options) (*Store, Recovery, error) {
	return Open(d, file, 0, twochoice.Numbered(8), size, o)
}

func mustOpen(t *testing.T, d *disk, o Options) (*Store, Recovery) {
	t.Helper()
	s, recovery, err := open(d, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, recovery
}

// randomChanges returns the changes of one commit.
func randomChanges(random *rand.Rand, table *twochoice.Table) []Change {
	out := make([]Change, 1+random.IntN(3))
	for i := range out {
		start := random.Uint64N(4000)
		c := &out[i]
		*c = Change{Kind: twochoice.Redirected, Object: objects[random.IntN(len(objects))],
			Range:    twochoice.Range{Start: start, End: start + 1 + random.Uint64N(800)},
			Location: twochoice.Location{Server: twochoice.Server(1 + random.IntN(7)), Fragment: random.Uint64()}}
		switch random.IntN(8) {
		case 0:
			c.Kind = twochoice.Home
		case 1, 2:
			c.Kind = twochoice.Returned
			last, _ := table.Last()
			c.AsOf = last - min(last, twochoice.Receipt(random.IntN(10)))
		}
	}
	return out
}

// view returns all locations without receipts, because receipts lost in a crash are reused.
func view(t *testing.T, table *twochoice.Table) []twochoice.Piece {
	t.Helper()
	var out []twochoice.Piece
	for _, o := range objects {
		from := len(out)
		var err error
		if out, err = table.Query(o, twochoice.Range{Start: 0, End: size}, out); err != nil {
			t.Fatal(err)
		}
		for i := range out[from:] {
			out[from+i].Receipt = 0
		}
	}
	return out
}

// model returns a table without a log.
func model(t *testing.T) *twochoice.Table {
	t.Helper()
	table, err := twochoice.NewTable(0, twochoice.Numbered(8), size)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func applyAll(t *testing.T, table *twochoice.Table, records []twochoice.Record) {
	t.Helper()
	for _, r := range records {
		if _, err := table.Apply(r, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnAcknowledgedChangeSurvivesACrashAtEveryCall(t *testing.T) {
	for seed := range uint64(4) {
		for at := 1; ; at++ {
			if !crashAt(t, seed, at) {
				break
			}
			if t.Failed() {
				t.Fatalf("with seed %d and a crash at call %d", seed, at)
			}
		}
	}
}

// crashAt runs commits on a disk that crashes at a call, repeatedly, and reports whether the call
// was reached.
func crashAt(t *testing.T, seed uint64, at int) bool {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, uint64(at)))
	d, reference := newDisk(), model(t)
	o := Options{CompactAbove: 600}
	crashed, began := false, false
	for life := range 4 {
		d.crashAt = at
		if life > 0 {
			d.crashAt = 1 + random.IntN(2*at)
		}
		s, _, err := open(d, o)
		var unsure []twochoice.Record // of the unfinished commit
		if err == nil {
			began = true
			if got, want := view(t, s.Table()), view(t, reference); !slices.Equal(got, want) {
				t.Errorf("life %d begins with %v, and acknowledged was %v", life, got, want)
			}
			unsure, err = live(t, s, reference, random)
		}
		if err == nil {
			continue
		}
		crashed = crashed || life == 0
		if !errors.Is(err, errCrash) {
			t.Errorf("life %d ends by %v", life, err)
		}
		d.crash(random)
		s, _, err = open(d, Options{CompactAbove: 600, MustExist: began && len(reference.Entries()) > 0})
		if err != nil {
			t.Errorf("after the crash of life %d: %v", life, err)
			return true
		}
		began = true
		got := view(t, s.Table())
		if !slices.Equal(got, view(t, reference)) {
			applyAll(t, reference, unsure) // the commit may be there, completely
			if want := view(t, reference); !slices.Equal(got, want) {
				t.Errorf("life %d left %v, and acknowledged was %v", life, got, want)
			}
		}
		// Receipts of lost records are reused.
		reference = model(t)
		if err := s.Table().Snapshot(func(r twochoice.Record) error {
			_, err := reference.Apply(r, nil)
			return err
		}); err != nil {
			t.Error(err)
		}
		reference.Resume(s.Table().Last())
	}
	return crashed
}

// live commits until the disk crashes or for a while; it returns the unfinished records.
func live(t *testing.T, s *Store, reference *twochoice.Table, random *rand.Rand) ([]twochoice.Record,
	error) {
	t.Helper()
	for range 12 {
		changes := randomChanges(random, s.Table())
		records, _, err := s.Commit(0, changes)
		if err != nil {
			var unsure []twochoice.Record
			issued, _ := reference.Last()
			for i, c := range changes {
				unsure = append(unsure, twochoice.Record{Kind: c.Kind, Object: c.Object, Range: c.Range,
					Location: c.Location, AsOf: c.AsOf, Receipt: issued + 1000 + twochoice.Receipt(i)})
			}
			return unsure, err
		}
		applyAll(t, reference, records)
		if failed := s.Failed(); failed != nil { // in a rewrite after the commit
			return nil, failed
		}
	}
	return nil, s.Close()
}

func TestAFullDiskLeavesTheTableAsItWas(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	for room := range 400 {
		d := newDisk()
		s, _ := mustOpen(t, d, Options{CompactAbove: 300})
		d.room = room
		var full *FullError
		var before []twochoice.Piece
		var err error
		for err == nil {
			before = view(t, s.Table())
			_, _, err = s.Commit(0, randomChanges(random, s.Table()))
		}
		if !errors.As(err, &full) || !errors.Is(err, syscall.ENOSPC) || s.Failed() != nil {
			t.Fatalf("with %d bytes of room: %v", room, err)
		}
		if !slices.Equal(view(t, s.Table()), before) {
			t.Fatalf("with %d bytes of room a refused commit changed the table", room)
		}
		if err := s.Compact(); err != nil && !errors.As(err, &full) {
			t.Fatalf("with %d bytes of room the rewrite: %v", room, err)
		}
		if !slices.Equal(view(t, s.Table()), before) || s.Failed() != nil {
			t.Fatalf("with %d bytes of room a rewrite changed the table", room)
		}
		d.room = -1
		if _, _, err := s.Commit(0, randomChanges(random, s.Table())); err != nil {
			t.Fatalf("when there is room again: %v", err)
		}
		want := view(t, s.Table())
		again, _ := mustOpen(t, d, Options{})
		if !slices.Equal(view(t, again.Table()), want) {
			t.Fatalf("with %d bytes of room the log is another than the table", room)
		}
	}
}

func TestAStoreWhoseDiskMayHaveWrittenOrNotFails(t *testing.T) {
	d := newDisk()
	s, _ := mustOpen(t, d, Options{})
	change := []Change{{Kind: twochoice.Redirected, Object: "a", Range: twochoice.Range{Start: 0, End: 9},
		Location: twochoice.Location{Server: 1, Fragment: 1}}}
	d.syncFails, d.syncError = 1, syscall.EIO
	var failed *FailedError
	if _, _, err := s.Commit(0, change); !errors.As(err, &failed) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("the answer is %v", err)
	}
	if s.Table().Len() != 0 || s.Failed() == nil {
		t.Fatal("a change that failed was made, or may be made again")
	}
	if _, _, err := s.Commit(0, change); !errors.As(err, &failed) {
		t.Fatalf("a store that failed answers %v", err)
	}
	if err := s.Compact(); !errors.As(err, &failed) {
		t.Fatalf("a store that failed is rewritten: %v", err)
	}
	// A full disk that reports so at the sync is different.
	s, _ = mustOpen(t, newDisk(), Options{})
	d = s.journal.file.(*handle).d
	d.syncFails, d.syncError = 1, syscall.ENOSPC
	var full *FullError
	if _, _, err := s.Commit(0, change); !errors.As(err, &full) || s.Failed() != nil {
		t.Fatalf("a disk that is full when it syncs: %v", err)
	}
	if _, _, err := s.Commit(0, change); err != nil || s.Table().Len() != 1 {
		t.Fatalf("afterwards: %v", err)
	}
}

// A commit that failed for lack of space changed nothing, also after a crash.
func TestWhatThereWasNoRoomForIsNotThereAfterACrash(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 9))
		d := newDisk()
		s, _ := mustOpen(t, d, Options{})
		if _, _, err := s.Commit(0, randomChanges(random, s.Table())); err != nil {
			t.Fatal(err)
		}
		before := view(t, s.Table())
		d.syncFails, d.syncError = 1, syscall.ENOSPC
		var full *FullError
		if _, _, err := s.Commit(0, randomChanges(random, s.Table())); !errors.As(err, &full) {
			t.Fatal(err)
		}
		d.crash(random)
		again, _ := mustOpen(t, d, Options{})
		if !slices.Equal(view(t, again.Table()), before) {
			t.Fatalf("seed %d: a commit that was refused is there", seed)
		}
	}
}

func TestALogStaysInProportionToWhatIsLive(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	d := newDisk()
	s, _ := mustOpen(t, d, Options{CompactAbove: 4096})
	for range 3000 {
		if _, _, err := s.Commit(0, randomChanges(random, s.Table())); err != nil {
			t.Fatal(err)
		}
	}
	stats := s.Stats()
	if stats.Rewrites == 0 || stats.Size > 4096+int64(150*s.Table().Pieces()) {
		t.Fatalf("%d pieces in a log of %d bytes that was rewritten %d times", s.Table().Pieces(),
			stats.Size, stats.Rewrites)
	}
	want := s.Table().Entries()
	last, _ := s.Table().Last()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, recovery := mustOpen(t, d, Options{})
	if got := again.Table().Entries(); !slices.Equal(got, want) {
		t.Fatalf("a log that was closed (%+v) has %d entries, and had %d", recovery, len(got), len(want))
	}
	if now, _ := again.Table().Last(); now < last {
		t.Fatalf("receipts go on from %d, and were at %d", now, last)
	}
}

func TestACommitIsRefusedAsAWhole(t *testing.T) {
	d := newDisk()
	s, _ := mustOpen(t, d, Options{})
	before := s.Stats().Size
	good := Change{Kind: twochoice.Redirected, Object: "a", Range: twochoice.Range{Start: 0, End: 9},
		Location: twochoice.Location{Server: 1, Fragment: 1}}
	beyond, strange := good, good
	beyond.Range.End = size + 1
	strange.Kind = twochoice.Held
	for _, changes := range [][]Change{{good, beyond}, {good, strange}} {
		if _, _, err := s.Commit(time.Second, changes); err == nil {
			t.Error("a commit with a change that is not allowed was taken")
		}
	}
	many := slices.Repeat([]Change{good}, 100_000)
	var parameter *twochoice.ParameterError
	if _, _, err := s.Commit(time.Second, many); !errors.As(err, &parameter) {
		t.Errorf("a commit that is too large: %v", err)
	}
	if records, dead, err := s.Commit(time.Second, nil); err != nil || records != nil || dead != nil {
		t.Errorf("a commit of nothing: %v", err)
	}
	if s.Table().Len() != 0 || s.Stats().Size != before {
		t.Error("what was refused has left something")
	}
}
