package redirectlog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/twochoice"
)

// written is a log of some commits after a snapshot, its table after each commit, and where each
// frame begins.
func written(t testing.TB, snapshot bool) (content []byte, tables [][]twochoice.Entry, starts []int64) {
	t.Helper()
	random := rand.New(rand.NewPCG(5, 5))
	d := newDisk()
	s, _, err := open(d, Options{CompactAbove: -1})
	if err != nil {
		t.Fatal(err)
	}
	commit := func() {
		starts = append(starts, s.Stats().Size)
		if _, _, err := s.Commit(time.Second, randomChanges(random, s.Table())); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, s.Table().Entries())
	}
	for range 5 {
		commit()
	}
	if snapshot {
		if err := s.Compact(); err != nil {
			t.Fatal(err)
		}
		tables, starts = tables[4:], []int64{headerSize}
	}
	for range 4 {
		commit()
	}
	return slices.Clone(d.names[file].now), tables, starts
}

func with(content []byte) *disk {
	d := newDisk()
	d.names[file] = &inode{slices.Clone(content), slices.Clone(content)}
	d.durable[file] = d.names[file]
	return d
}

func TestATornTailIsCutOff(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		content, tables, starts := written(t, snapshot)
		last := starts[len(starts)-1]
		for end := last; end < int64(len(content)); end++ {
			for _, zeros := range []int{0, 1, 100} {
				given := append(slices.Clone(content[:end]), make([]byte, zeros)...)
				s, recovery, err := open(with(given), Options{})
				if err != nil {
					t.Fatalf("cut at %d: %v", end, err)
				}
				// Its padding is zeros: with these the last commit may be whole.
				kept, want := last, tables[len(tables)-2]
				if len(given) >= len(content) && slices.Equal(given[:len(content)], content) {
					kept, want = int64(len(content)), tables[len(tables)-1]
				}
				if !slices.Equal(s.Table().Entries(), want) {
					t.Fatalf("cut at %d, %d zeros: the table is another", end, zeros)
				}
				if torn := int64(len(given)) - kept; recovery.TornBytes != torn ||
					(torn > 0 && recovery.TornAt != kept) || s.Stats().Size != kept {
					t.Fatalf("cut at %d, %d zeros: told is %+v", end, zeros, recovery)
				}
				if _, _, err := s.Commit(time.Hour, []Change{{Kind: twochoice.Home, Object: "a",
					Range: twochoice.Range{Start: 0, End: 1}}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestACorruptMiddleIsRefused(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		content, tables, starts := written(t, snapshot)
		last := int(starts[len(starts)-1])
		for at := range content {
			spoilt := slices.Clone(content)
			spoilt[at] ^= 1 << (at % 8)
			d := with(spoilt)
			s, _, err := open(d, Options{})
			var corrupt *CorruptError
			if at >= last {
				// The last commit: it might be torn, unless something follows it.
				if err != nil || !slices.Equal(s.Table().Entries(), tables[len(tables)-2]) {
					t.Fatalf("byte %d of the last commit is spoilt: %v", at, err)
				}
				continue
			}
			if !errors.As(err, &corrupt) {
				t.Fatalf("byte %d of %d is spoilt: %v", at, last, err)
			}
			if corrupt.File != "/disk/"+file || corrupt.Offset > int64(at) || corrupt.Problem == "" ||
				!strings.Contains(err.Error(), "restore it from a copy") {
				t.Fatalf("byte %d is spoilt, and told is %v", at, err)
			}
			if !slices.Equal(d.names[file].now, spoilt) {
				t.Fatalf("byte %d is spoilt, and the file was changed", at)
			}
		}
	}
}

// A crash tears the last commit while the disk has spoilt the one before it, which was acknowledged: that
// both cannot be read does not make both the tail.
func TestASpoiltCommitBeforeATornOneIsRefused(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		content, _, starts := written(t, snapshot)
		first, last := int(starts[len(starts)-2]), int(starts[len(starts)-1])
		for at := first; at < last; at++ {
			for _, end := range []int{last + 1, last + 8, last + frameNamed, last + frameHeader, last + frameHeader + 5,
				len(content) - 9} {
				if at < first+8 && end < last+frameNamed {
					continue // neither where the one ends nor that the other begins can be told
				}
				given := slices.Clone(content[:end])
				given[at] ^= 1 << (at % 8)
				d := with(given)
				_, _, err := open(d, Options{})
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) || corrupt.Offset != int64(first) || !slices.Equal(d.names[file].now, given) {
					t.Fatalf("byte %d of %d to %d is spoilt, and the file cut at %d: %v", at, first, last, end, err)
				}
			}
		}
	}
}

func TestTheLastCommitOfAClosedLogIsNotATornTail(t *testing.T) {
	content, tables, starts := written(t, false)
	d := with(content)
	s, _ := mustOpen(t, d, Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closed := slices.Clone(d.names[file].now)
	for at := int(starts[len(starts)-1]); at < len(closed); at++ {
		spoilt := slices.Clone(closed)
		spoilt[at] ^= 0x10
		again, _, err := open(with(spoilt), Options{})
		if at < len(content) {
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("byte %d of the last commit is spoilt: %v", at, err)
			}
		} else if err != nil || !slices.Equal(again.Table().Entries(), tables[len(tables)-1]) {
			t.Fatalf("byte %d of the mark is spoilt: %v", at, err)
		}
	}
}

func TestALostStretchIsRefused(t *testing.T) {
	content, _, starts := written(t, true)
	var corrupt *CorruptError
	for i := 1; i+1 < len(starts); i++ { // a whole frame is missing
		d := with(slices.Concat(content[:starts[i]], content[starts[i+1]:]))
		if _, _, err := open(d, Options{}); !errors.As(err, &corrupt) {
			t.Errorf("without frame %d: %v", i, err)
		}
	}
	// More is unreadable than one commit can be.
	d := with(append(slices.Clone(content), make([]byte, 2*maxPayload)...))
	if _, _, err := open(d, Options{}); !errors.As(err, &corrupt) {
		t.Errorf("with 2 MiB of zeros behind it: %v", err)
	}
	for end := range starts[1] { // within the snapshot, which was durable before it had its name
		if _, _, err := open(with(content[:end]), Options{}); !errors.As(err, &corrupt) {
			t.Errorf("cut within the snapshot, at %d: %v", end, err)
		}
	}
}

func TestALogOfAnotherIsRefused(t *testing.T) {
	content, _, _ := written(t, false)
	reopen := func(home twochoice.Server, servers int, size uint64, content []byte) error {
		d := with(content)
		_, _, err := Open(d, file, home, twochoice.Numbered(servers), size, Options{})
		if !slices.Equal(d.names[file].now, content) {
			t.Error("a log that was refused was changed")
		}
		return err
	}
	var owner *OwnerError
	if err := reopen(1, 8, size, content); !errors.As(err, &owner) || owner.Owner != 0 || owner.Asked != 1 {
		t.Errorf("the log of another OSD: %v", err)
	}
	var record *RecordError
	var unknown *twochoice.UnknownServerError
	if err := reopen(0, 3, size, content); !errors.As(err, &record) || !errors.As(err, &unknown) {
		t.Errorf("a cluster that has lost OSDs: %v", err)
	}
	var outside *twochoice.RangeError
	if err := reopen(0, 8, 100, content); !errors.As(err, &record) || !errors.As(err, &outside) {
		t.Errorf("smaller objects: %v", err)
	}
	newer := slices.Clone(content)
	newer[8] = 2
	binary.LittleEndian.PutUint32(newer[52:], crc32.Checksum(newer[:52], castagnoli))
	var version *VersionError
	if err := reopen(0, 8, size, newer); !errors.As(err, &version) || version.Found != 2 {
		t.Errorf("a newer version: %v", err)
	}
	var missing *MissingError
	if _, _, err := open(newDisk(), Options{MustExist: true}); !errors.As(err, &missing) {
		t.Errorf("a log that is not there: %v", err)
	}
}

func TestAFolderIsOneAgents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "osd.0")
	folder, err := OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(path); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a folder in use is given to a second agent: %v", err)
	}
	random := rand.New(rand.NewPCG(6, 6))
	s, recovery, err := Open(folder, file, 0, twochoice.Numbered(8), size, Options{CompactAbove: 2000})
	if err != nil || !recovery.Created {
		t.Fatal(recovery, err)
	}
	for range 100 {
		if _, _, err := s.Commit(0, randomChanges(random, s.Table())); err != nil {
			t.Fatal(err)
		}
	}
	want := view(t, s.Table())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := folder.Close(); err != nil {
		t.Fatal(err)
	}
	if folder, err = OpenFolder(path); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = folder.Close() }()
	// What a crash left of a rewrite is removed.
	if err := os.WriteFile(folder.Path(file+suffix), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, recovery, err = Open(folder, file, 0, twochoice.Numbered(8), size, Options{MustExist: true})
	if err != nil || !recovery.Clean || !recovery.Leftover || !slices.Equal(view(t, s.Table()), want) {
		t.Fatalf("opened again: %+v, %v", recovery, err)
	}
	if names, err := os.ReadDir(path); err != nil || len(names) != 1 {
		t.Fatalf("the folder has %v (%v)", names, err)
	}
}

// FuzzOpen opens logs that are anything: none makes it panic, one that is refused is left as it is,
// and one that is opened gives the same table again.
func FuzzOpen(f *testing.F) {
	for _, snapshot := range []bool{false, true} {
		content, _, _ := written(f, snapshot)
		f.Add(content, uint32(0), []byte{})
		f.Add(content, uint32(len(content)-9), []byte{1, 2, 3, 4})
	}
	f.Add([]byte{}, uint32(0), []byte{0x90})
	f.Fuzz(func(t *testing.T, content []byte, at uint32, payload []byte) {
		if len(payload) > 0 && int(at) < len(content) && at >= headerSize {
			// A frame with this payload and a right checksum, at the end of a stretch.
			h, problem := decodeHeader(content)
			if problem == "" && len(payload) <= maxPayload {
				b := beginFrame(slices.Clone(content[:at&^7]))
				b = append(b, payload...)
				content = endFrame(b, int(at&^7), h.generation, 1, changesFrame)
			}
		}
		d := with(content)
		s, recovery, err := open(d, Options{})
		if err != nil {
			if !slices.Equal(d.names[file].now, content) {
				t.Fatalf("%v, and the file was changed", err)
			}
			return
		}
		want := s.Table().Entries()
		again, second, err := open(d, Options{})
		if err != nil || second.TornBytes != 0 || second.Records != recovery.Records {
			t.Fatalf("opened again: %+v, %v", second, err)
		}
		if !slices.Equal(again.Table().Entries(), want) {
			t.Fatal("opened again the table is another")
		}
	})
}

// What an older file of the log left on the disk is no record of the one in its place, though its number follows.
func TestARecordOfAnOlderFileIsNotTaken(t *testing.T) {
	old, _, starts := written(t, false)
	d := with(old)
	s, _ := mustOpen(t, d, Options{CompactAbove: -1})
	if err := s.Compact(); err != nil {
		t.Fatal(err)
	}
	want := s.Table().Entries()
	content := slices.Clone(d.names[file].now)
	number := int(s.journal.number)
	left := old[starts[number]:starts[number+1]]
	again, recovery := mustOpen(t, with(append(content, left...)), Options{})
	if !slices.Equal(again.Table().Entries(), want) || recovery.TornBytes != int64(len(left)) {
		t.Fatalf("a record of an older file was taken: %+v", recovery)
	}
}
