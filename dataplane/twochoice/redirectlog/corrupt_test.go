package redirectlog

import (
	"bytes"
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

// written returns a log of several commits after a snapshot, its table after each commit, and each
// frame's start. The last commit is longer than two sectors.
func written(t testing.TB, snapshot bool) (log []byte, tables [][]twochoice.Entry, starts []int64) {
	t.Helper()
	random := rand.New(rand.NewPCG(5, 5))
	d := newDisk()
	s, _, err := open(d, Options{CompactAbove: -1})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(changes []Change) {
		starts = append(starts, s.Stats().Size)
		if _, _, err := s.Commit(time.Second, changes); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, s.Table().Entries())
	}
	for range 5 {
		commit(randomChanges(random, s.Table()))
	}
	if snapshot {
		if err := s.Compact(); err != nil {
			t.Fatal(err)
		}
		tables, starts = tables[4:], []int64{headerSize}
	}
	for range 3 {
		commit(randomChanges(random, s.Table()))
	}
	commit(slices.Repeat(randomChanges(random, s.Table())[:1], 70))
	return logOf(d), tables, starts
}

// logOf returns the log in a file: its first copies, without the padding.
func logOf(d *disk) []byte {
	s, _, err := load(&handle{d, d.names[file]}, file)
	if err != nil {
		panic(err)
	}
	found, err := s.scan(&Journal{})
	if err != nil {
		panic(err)
	}
	return found.log
}

// twice returns the file of a log.
func twice(log []byte) []byte { return appendPairs(nil, log) }

func with(content []byte) *disk {
	d := newDisk()
	d.names[file] = &inode{slices.Clone(content), slices.Clone(content)}
	d.durable[file] = d.names[file]
	return d
}

// reopens checks that a log opens with the wanted table, accepts writes, and is intact afterwards.
func reopens(t *testing.T, d *disk, want []twochoice.Entry) Recovery {
	t.Helper()
	s, recovery, err := open(d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Table().Entries(), want) {
		t.Fatalf("the table is another: %+v", recovery)
	}
	if _, _, err := s.Commit(time.Hour, []Change{{Kind: twochoice.Home, Object: "a",
		Range: twochoice.Range{Start: 0, End: 1}}}); err != nil {
		t.Fatal(err)
	}
	again, second, err := open(d, Options{})
	if err != nil || second.TornBytes > 0 || second.Repaired > 0 ||
		!slices.Equal(again.Table().Entries(), s.Table().Entries()) {
		t.Fatalf("opened again: %+v, %v", second, err)
	}
	return recovery
}

// refuses checks that a log is refused at the frame starting at a byte, and left unchanged.
func refuses(t *testing.T, content []byte, start int64) {
	t.Helper()
	d := with(content)
	_, _, err := open(d, Options{})
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.File != "/disk/"+file || corrupt.Offset != inFile(start) || corrupt.Problem == "" {
		t.Fatalf("damage in the frame at %d: %v", start, err)
	}
	if !slices.Equal(d.names[file].now, content) {
		t.Fatal("the file was changed")
	}
}

// sectors returns the sectors in which two files differ; the shorter file continues with zeros.
func sectors(a, b []byte) []int {
	var out []int
	for at := 0; at < max(len(a), len(b)); at += sectorSize {
		part := func(f []byte) []byte {
			return append(slices.Clone(f[min(at, len(f)):min(at+sectorSize, len(f))]), zeros[:]...)[:sectorSize]
		}
		if !slices.Equal(part(a), part(b)) {
			out = append(out, at)
		}
	}
	return out
}

// Each sector of an append reaches the disk or not: the append is complete or cut off.
func TestATornTailIsCutOff(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		log, tables, starts := written(t, snapshot)
		last := int(starts[len(starts)-1])
		before, after := twice(log[:last]), twice(log)
		differ := sectors(before, after)
		if len(differ) < 6 {
			t.Fatalf("the last commit is in %d sectors", len(differ))
		}
		for mask := range 1 << len(differ) {
			content := slices.Clone(before)
			there := [2]int{}
			for i, at := range differ {
				if mask>>i&1 == 1 {
					content = append(content, make([]byte, max(0, at+sectorSize-len(content)))...)
					copy(content[at:], after[at:at+sectorSize])
					there[at/blockSize%2] |= 1 << (at % blockSize / sectorSize)
				}
			}
			whole := there[0]|there[1] == (1<<(len(differ)/2)-1)<<(last/sectorSize)
			want := tables[len(tables)-2]
			if whole {
				want = tables[len(tables)-1]
			}
			recovery := reopens(t, with(content), want)
			if torn := !whole && mask > 0; torn != (recovery.TornBytes > 0) || torn && recovery.TornAt != inFile(int64(last)) {
				t.Fatalf("sectors %b of %v: %+v", mask, differ, recovery)
			}
		}
	}
}

// faults returns possible corruptions of one sector of a file; others holds other files.
func faults(content []byte, at int, others [][]byte) [][]byte {
	var out [][]byte
	put := func(sector []byte) {
		spoilt := slices.Clone(content)
		copy(spoilt[at:], sector)
		out = append(out, spoilt)
	}
	for bit := range 8 {
		sector := slices.Clone(content[at : at+sectorSize])
		sector[(at/sectorSize*97+bit*61)%sectorSize] ^= 1 << bit
		put(sector)
	}
	put(zeros[:sectorSize])
	for _, other := range others {
		for from := 0; from < len(other); from += sectorSize {
			put(other[from : from+sectorSize])
		}
	}
	return out
}

// Any damage to any one sector loses nothing, and is repaired.
func TestADamagedSectorIsRepaired(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		log, tables, starts := written(t, snapshot)
		other, _, _ := written(t, !snapshot)
		content := twice(log)
		// These include stale sectors: the file before its last commit.
		others := [][]byte{content, twice(log[:starts[len(starts)-1]]), twice(other)}
		repaired := 0
		for at := 0; at < len(content); at += sectorSize {
			for _, spoilt := range faults(content, at, others) {
				d := with(spoilt)
				recovery := reopens(t, d, tables[len(tables)-1])
				repaired += recovery.Repaired
				if !slices.Equal(spoilt, content) && recovery.Repaired == 0 && recovery.TornBytes == 0 {
					t.Fatalf("sector %d: %+v", at, recovery)
				}
			}
		}
		if repaired == 0 {
			t.Error("nothing was repaired")
		}
	}
}

// Any sectors may be damaged as long as the other copy of each is intact.
func TestAFrameIsPutTogetherFromBothCopies(t *testing.T) {
	log, tables, _ := written(t, false)
	content := twice(log)
	n := (len(log) + sectorSize - 1) / sectorSize
	for mask := range 1 << n {
		spoilt := slices.Clone(content)
		for i := range n {
			copy(spoilt[i*sectorSize+(mask>>i&1)*blockSize:], zeros[:sectorSize])
		}
		reopens(t, with(spoilt), tables[len(tables)-1])
	}
}

// A frame damaged in both copies is not torn, not even the last frame: it has its full length.
func TestAFrameThatIsDamagedInBothCopiesIsRefused(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		log, _, starts := written(t, snapshot)
		last := starts[len(starts)-1]
		for at := range log {
			i, found := slices.BinarySearch(starts, int64(at))
			start := int64(0)
			if found {
				start = int64(at)
			} else if i > 0 {
				start = starts[i-1]
			}
			if at := int64(at) - last; at >= 4 && at < 8 {
				continue // a last record that claims to be longer may be torn
			}
			spoilt := slices.Clone(log)
			spoilt[at] ^= 1 << (at % 8)
			refuses(t, twice(spoilt), start)
		}
	}
}

// A crash tears the last commit, and the disk has damaged both copies of the acknowledged commit
// before it. The two unreadable commits together must not count as the tail.
func TestASpoiltCommitBeforeATornOneIsRefused(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		log, _, starts := written(t, snapshot)
		first, last := int(starts[len(starts)-2]), int(starts[len(starts)-1])
		for at := first; at < last; at++ {
			for end := (last + sectorSize - 1) / sectorSize * sectorSize; end < len(log); end += sectorSize {
				spoilt := slices.Clone(log[:end])
				spoilt[at] ^= 1 << (at % 8)
				refuses(t, twice(spoilt), int64(first))
			}
		}
	}
}

func TestALostStretchIsRefused(t *testing.T) {
	log, _, starts := written(t, true)
	for i := 1; i+1 < len(starts); i++ { // a whole frame is missing
		refuses(t, twice(slices.Concat(log[:starts[i]], log[starts[i+1]:])), starts[i])
	}
	// More is unreadable than one commit can contain.
	refuses(t, twice(append(slices.Clone(log), bytes.Repeat([]byte{1}, 2*maxPayload)...)), int64(len(log)))
	for end := range starts[1] { // within the snapshot, which was durable before it got its name
		content := twice(log[:end])
		if slices.Equal(content, twice(log[:starts[1]])) {
			continue // equal except for its padding
		}
		_, _, err := open(with(content), Options{})
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Errorf("cut within the snapshot, at %d: %v", end, err)
		}
	}
}

func TestALogOfAnotherIsRefused(t *testing.T) {
	log, _, _ := written(t, false)
	content := twice(log)
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
	newer := slices.Clone(log)
	newer[8] = Version + 1
	binary.LittleEndian.PutUint32(newer[52:], crc32.Checksum(newer[:52], castagnoli))
	var version *VersionError
	if err := reopen(0, 8, size, twice(newer)); !errors.As(err, &version) || version.Found != Version+1 {
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
	// Leftovers of a crashed rewrite are removed.
	if err := os.WriteFile(folder.Path(file+suffix), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, recovery, err = Open(folder, file, 0, twochoice.Numbered(8), size, Options{MustExist: true})
	if err != nil || recovery.TornBytes > 0 || !recovery.Leftover || !slices.Equal(view(t, s.Table()), want) {
		t.Fatalf("opened again: %+v, %v", recovery, err)
	}
	if names, err := os.ReadDir(path); err != nil || len(names) != 1 {
		t.Fatalf("the folder has %v (%v)", names, err)
	}
}

// FuzzOpen opens arbitrary logs. No log causes a panic, a refused log stays unchanged, and an
// opened log gives the same table again.
func FuzzOpen(f *testing.F) {
	for _, snapshot := range []bool{false, true} {
		log, _, _ := written(f, snapshot)
		f.Add(log, uint32(0), []byte{}, uint32(0))
		f.Add(log, uint32(len(log)-9), []byte{1, 2, 3, 4}, uint32(5000))
	}
	f.Add([]byte{}, uint32(0), []byte{0x90}, uint32(0))
	f.Fuzz(func(t *testing.T, content []byte, at uint32, payload []byte, flip uint32) {
		if len(payload) > 0 && int(at) < len(content) && at >= headerSize {
			// A frame with this payload and a correct checksum, at 8-byte alignment.
			h, problem := decodeHeader(content)
			if problem == "" && len(payload) <= maxPayload {
				b := beginFrame(slices.Clone(content[:at&^7]))
				b = append(b, payload...)
				content = endFrame(b, int(at&^7), h.generation, 1, changesFrame)
			}
		}
		content = twice(content)
		if int(flip/8) < len(content) {
			content[flip/8] ^= 1 << (flip % 8)
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

// A leftover of an older log file is not a record of the new file, even if its number fits.
func TestARecordOfAnOlderFileIsNotTaken(t *testing.T) {
	old, _, starts := written(t, false)
	d := with(twice(old))
	s, _ := mustOpen(t, d, Options{CompactAbove: -1})
	if err := s.Compact(); err != nil {
		t.Fatal(err)
	}
	want := s.Table().Entries()
	log := logOf(d)
	number := int(s.journal.number)
	left := append(log, old[starts[number]:starts[number+1]]...)
	refuses(t, twice(left), int64(len(log)))
	content := slices.Clone(d.names[file].now)
	copy(content[blockSize:], left) // in one copy
	if recovery := reopens(t, with(content), want); recovery.TornBytes == 0 {
		t.Fatalf("a record of an older file was taken: %+v", recovery)
	}
}
