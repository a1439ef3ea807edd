package redirectlog

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hotbed/dataplane/twochoice"
)

// TestWhatAKilledProcessLeftLastsOnceItWasRead kills the process at every call, so that unsynced
// writes are still in memory. It opens the log, and then cuts the power, at once or after a commit.
func TestWhatAKilledProcessLeftLastsOnceItWasRead(t *testing.T) {
	for seed := range uint64(4) {
		killed(t, seed, false)
		killed(t, seed, true)
	}
}

func killed(t *testing.T, seed uint64, commit bool) {
	seen := 0
	for at := 1; ; at++ {
		random := rand.New(rand.NewPCG(uint64(at), seed))
		d := newDisk()
		d.crashAt = at
		s, _, err := open(d, Options{CompactAbove: 600})
		if err == nil {
			_, err = live(t, s, model(t), random)
		}
		if err == nil {
			break
		}
		d.crashAt, d.calls = 0, 0
		s, _ = mustOpen(t, d, Options{})
		if commit {
			if _, _, err := s.Commit(time.Hour, randomChanges(random, s.Table())); err != nil {
				t.Fatal(err)
			}
		}
		want := view(t, s.Table())
		seen += s.Table().Len()
		d.crash(random)
		s, _ = mustOpen(t, d, Options{})
		if got := view(t, s.Table()); !slices.Equal(got, want) {
			t.Fatalf("killed at call %d, seed %d: read was %v, and then there is %v", at, seed, want, got)
		}
	}
	if seen == 0 {
		t.Fatal("nothing was ever there")
	}
}

func TestAJournalKeepsNotes(t *testing.T) {
	d := newDisk()
	var read []Entry
	take := func(e Entry) error {
		e.Note = slices.Clone(e.Note)
		read = append(read, e)
		return nil
	}
	j, recovery, err := OpenJournal(d, file, 2, false, nil, take)
	if err != nil || !recovery.Created {
		t.Fatal(recovery, err)
	}
	held := twochoice.Record{Kind: twochoice.Held, Object: "o", Range: twochoice.Range{Start: 4, End: 9},
		Receipt: 3, Time: -1, Location: twochoice.Location{Server: 1, Fragment: 1 << 63},
		Origin: twochoice.Range{Start: 0, End: twochoice.MaxObject}}
	want := []Entry{{held, []byte("of client 7")}, {Note: []byte{0}}, {Record: held}, {}}
	for i := range want {
		if err := j.Append(want[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		read = nil
		if j, recovery, err = OpenJournal(d, file, 2, false, nil, take); err != nil || recovery.TornBytes > 0 {
			t.Fatal(recovery, err)
		}
		if !slices.EqualFunc(read, want, func(a, b Entry) bool {
			return a.Record == b.Record && string(a.Note) == string(b.Note)
		}) {
			t.Fatalf("read are %v, and written were %v", read, want)
		}
	}
	check()
	before := j.Size()
	want = slices.Repeat(want[:2], 2000)
	if err := j.Replace(want); err != nil || j.Size() <= before {
		t.Fatal(err)
	}
	check()
	var record *RecordError
	_, _, err = OpenJournal(d, file, 2, false, nil, func(Entry) error { return errNote })
	if !errors.As(err, &record) || !errors.Is(err, errNote) || record.Offset != headerSize {
		t.Fatalf("an entry that is not taken: %v", err)
	}
	if _, _, err = Open(d, file, 2, twochoice.Numbered(3), size, Options{}); !errors.As(err, &record) {
		t.Fatalf("an agent's journal as a table's log: %v", err)
	}
}

// broken is an unreadable file.
type broken struct{ File }

func (b broken) ReadAt(p []byte, offset int64) (int, error) {
	if n := len(p) / 2; offset+int64(n) > headerSize {
		return n, syscall.EIO
	}
	return b.File.ReadAt(p, offset)
}

type brokenDisk struct{ *disk }

func (d brokenDisk) Open(name string) (File, error) {
	f, err := d.disk.Open(name)
	return broken{f}, err
}

func TestADiskThatCannotBeReadIsNoTornTail(t *testing.T) {
	log, _, _ := written(t, false)
	content := twice(log)
	d := with(content)
	_, _, err := Open(brokenDisk{d}, file, 0, twochoice.Numbered(8), size, Options{})
	if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "cannot be read at byte") {
		t.Fatalf("the answer is %v", err)
	}
	if !slices.Equal(d.names[file].now, content) {
		t.Fatal("the file was changed")
	}
}
