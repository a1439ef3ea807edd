package filestore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/redirectlog"
)

// folder is a real folder.
type folder struct {
	*redirectlog.Folder
	path string
}

func (f folder) List() ([]string, error) {
	entries, err := os.ReadDir(f.path)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// opened is a disk with its folder.
type opened struct {
	*Disk
	folder *redirectlog.Folder
}

func open(t *testing.T, path string) (opened, Found, error) {
	t.Helper()
	f, err := redirectlog.OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	d, found, err := OpenDisk(folder{f, path}, 3)
	return opened{d, f}, found, err
}

// end closes a disk and releases its folder.
func (o opened) end(t *testing.T) {
	t.Helper()
	if err := errors.Join(o.Close(), o.folder.Close()); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, d opened, op protocol.DiskOp) []byte {
	t.Helper()
	done := d.Do(op)
	if done.Err != nil {
		t.Fatal(done.Err)
	}
	return done.Data
}

func bytesOf(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(rand.Uint32())
	}
	return out
}

var name = protocol.WriteID{Client: 0xabc, Seq: 17}

func put(data []byte) protocol.DiskOp {
	return protocol.DiskOp{Kind: protocol.PutFragment, Object: "run/5", Write: name, Node: 2, From: 1000,
		To: 1000 + uint64(len(data)), Data: data}
}

func get(from, to uint64) protocol.DiskOp {
	return protocol.DiskOp{Kind: protocol.GetFragment, Object: "run/5", Write: name, From: from, To: to}
}

func TestAnyPartOfAFragmentIsReadBack(t *testing.T) {
	d, _, err := open(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 100, blockSize - 1, blockSize, blockSize + 1, 3*blockSize + 7} {
		data := bytesOf(n)
		must(t, d, put(data))
		for range 50 {
			from := rand.IntN(n)
			to := from + 1 + rand.IntN(n-from)
			if got := must(t, d, get(1000+uint64(from), 1000+uint64(to))); !bytes.Equal(got, data[from:to]) {
				t.Fatalf("%d bytes: %d to %d differ", n, from, to)
			}
		}
		must(t, d, protocol.DiskOp{Kind: protocol.DropFragment, Object: "run/5", Write: name})
		if done := d.Do(get(1000, 1001)); !errors.Is(done.Err, protocol.ErrGone) {
			t.Fatalf("a dropped fragment: %v", done.Err)
		}
	}
}

func TestEveryDamagedByteOfAFragmentIsFound(t *testing.T) {
	path := t.TempDir()
	d, _, err := open(t, path)
	if err != nil {
		t.Fatal(err)
	}
	data := bytesOf(300)
	must(t, d, put(data))
	file := filepath.Join(path, "f.0000000000000abc.11")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		bad := bytes.Clone(whole)
		bad[at] ^= 1 << (at % 8)
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if done := d.Do(get(1000, 1300)); done.Err == nil {
			t.Fatalf("byte %d was damaged and %d bytes were read", at, len(done.Data))
		}
	}
	for _, n := range []int{0, 10, 60, len(whole) - 1} {
		if err := os.WriteFile(file, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if done := d.Do(get(1000, 1300)); !errors.Is(done.Err, protocol.ErrDamaged) {
			t.Fatalf("of a file cut to %d bytes: %v", n, done.Err)
		}
	}
	// An intact fragment under another fragment's name must be refused.
	other := put(bytesOf(300))
	other.Write.Seq++
	must(t, d, other)
	if err := os.Rename(filepath.Join(path, FragmentName(other.Write)), file); err != nil {
		t.Fatal(err)
	}
	if done := d.Do(get(1000, 1300)); !errors.Is(done.Err, protocol.ErrDamaged) {
		t.Fatalf("another fragment was read: %v", done.Err)
	}
	d.end(t)
	// The store is served without the fragment.
	_, found, err := open(t, path)
	if err != nil || len(found.Fragments) != 1 || found.Fragments[0].Write != name ||
		!strings.Contains(found.Fragments[0].Damage, file) {
		t.Errorf("a fragment in another's place: %+v, %v", found.Fragments, err)
	}
}

func TestADamagedBaseIsFound(t *testing.T) {
	path := t.TempDir()
	d, _, err := open(t, path)
	if err != nil {
		t.Fatal(err)
	}
	data := bytesOf(blockSize + 100)
	done := d.Do(protocol.DiskOp{Kind: protocol.WriteBase, Object: "o", From: 10, To: 10 + uint64(len(data)), Data: data})
	if done.Err != nil || len(done.Sums) != 2 {
		t.Fatalf("%+v", done)
	}
	file := filepath.Join(path, BaseName("o"))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	read := func(from, to uint64, sums []protocol.Sum) protocol.DiskDone {
		return d.Do(protocol.DiskOp{Kind: protocol.ReadBase, Object: "o", From: from, To: to, Sums: sums})
	}
	if got := read(20, blockSize+50, done.Sums); !bytes.Equal(got.Data, data[10:blockSize+40]) {
		t.Errorf("%d bytes, %v", len(got.Data), got.Err)
	}
	if got := read(0, 20, done.Sums[:1]); !bytes.Equal(got.Data, append(make([]byte, 10), data[:10]...)) {
		t.Errorf("before the first byte that was written: %v, %v", got.Data, got.Err)
	}
	for _, at := range []int{10, 10 + blockSize, len(whole) - 1} {
		bad := bytes.Clone(whole)
		bad[at] ^= 1
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		for i, s := range done.Sums {
			got := read(s.From, s.From+1, done.Sums[i:i+1])
			if within := uint64(at) >= s.From && uint64(at) < s.To; within != errors.Is(got.Err, protocol.ErrDamaged) {
				t.Errorf("byte %d is damaged, read is %d: %v", at, s.From, got.Err)
			}
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := read(10, 11, done.Sums[:1]); !errors.Is(got.Err, protocol.ErrDamaged) {
		t.Errorf("a base that is gone: %v", got.Err)
	}
}

func TestAStoreIsFoundAsItWasLeft(t *testing.T) {
	path := t.TempDir()
	d, _, err := open(t, path)
	if err != nil {
		t.Fatal(err)
	}
	must(t, d, put([]byte("bytes")))
	must(t, d, protocol.DiskOp{Kind: protocol.WriteBase, Object: "run/5", From: 7, To: 10, Data: []byte("bas")})
	records := []protocol.Record{
		{Change: twochoice.Record{Kind: twochoice.Redirected, Object: "run/5", Range: twochoice.Range{Start: 1, End: 9},
			Receipt: 1, Time: 5, Location: twochoice.Location{Server: 1, Fragment: 1}},
			Note: protocol.Note{Kind: protocol.OfWrite, Write: name, Second: 3}},
		{Note: protocol.Note{Kind: protocol.OfFence, Write: name}},
		{Change: twochoice.Record{Object: "run/5"}, Note: protocol.Note{Kind: protocol.ObjectIs, Value: 9, Sums: "any"}},
		{Change: twochoice.Record{Receipt: 8, Time: 6}, Note: protocol.Note{Kind: protocol.LastIs}},
	}
	must(t, d, protocol.DiskOp{Kind: protocol.WriteLog, Records: records[:1]})
	must(t, d, protocol.DiskOp{Kind: protocol.WriteLog, Records: records[1:]})
	if err := os.WriteFile(filepath.Join(path, "t.0000000000000001.1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.end(t)
	compare := func(found Found) {
		t.Helper()
		want := protocol.Fragment{Object: "run/5", Write: name, Node: 2, From: 1000, To: 1005}
		if len(found.Fragments) != 1 || found.Fragments[0] != want {
			t.Errorf("fragments %+v", found.Fragments)
		}
		if len(found.Records) != len(records) {
			t.Fatalf("records %+v", found.Records)
		}
		for i, r := range found.Records {
			if r != records[i] {
				t.Errorf("record %d is %+v", i, r)
			}
		}
	}
	d, found, err := open(t, path)
	if err != nil {
		t.Fatal(err)
	}
	compare(found)
	if _, err := os.Stat(filepath.Join(path, "t.0000000000000001.1")); !errors.Is(err, os.ErrNotExist) {
		t.Error("an unfinished fragment is still there")
	}
	base := must(t, d, protocol.DiskOp{Kind: protocol.ReadBase, Object: "run/5", From: 5, To: 12,
		Sums: protocol.SumsOf(7, []byte("bas"))})
	if string(base) != "\x00\x00bas\x00\x00" {
		t.Errorf("the base is %q", base)
	}
	must(t, d, protocol.DiskOp{Kind: protocol.CompactLog, Records: records})
	d.end(t)
	if _, found, err = open(t, path); err != nil {
		t.Fatal(err)
	}
	compare(found)
}

func TestADamagedLogIsRefusedAndATornTailIsCutOff(t *testing.T) {
	path := t.TempDir()
	d, _, err := open(t, path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5) {
		must(t, d, protocol.DiskOp{Kind: protocol.WriteLog, Records: []protocol.Record{
			{Note: protocol.Note{Kind: protocol.OfFence, Write: protocol.WriteID{Client: 1, Seq: i + 1}}}}})
	}
	log := filepath.Join(path, LogName)
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for at := 60; at < len(bytes.TrimRight(whole[:4096], "\x00")); at += 7 { // in both copies
		other := t.TempDir()
		bad := bytes.Clone(whole)
		bad[at] ^= 4
		bad[at+4096] ^= 4
		if err := os.WriteFile(filepath.Join(other, LogName), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := open(t, other)
		var corrupt *redirectlog.CorruptError
		if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), "at byte") {
			t.Fatalf("byte %d of the log was damaged: %v", at, err)
		}
	}
	// A kill during a call leaves the beginning of an append in the first copy. A separate record
	// marks that it was cut off.
	other := t.TempDir()
	torn := bytes.Clone(whole)
	copy(torn[len(bytes.TrimRight(whole[:4096], "\x00"))+8:], "RFRM")
	if err := os.WriteFile(filepath.Join(other, LogName), torn, 0o600); err != nil {
		t.Fatal(err)
	}
	_, found, err := open(t, other)
	if err != nil || found.Recovery.TornBytes == 0 || len(found.Records) != 6 || found.Records[5] != protocol.CutRecord() {
		t.Fatalf("a torn log: %+v, %v", found, err)
	}
}

// met is a folder that runs `before` just before a base is opened or created, and just before names
// are made durable.
type met struct {
	folder
	before func(base bool)
}

func (m met) Create(name string) (redirectlog.File, error) {
	if strings.HasPrefix(name, "b.") {
		m.before(true)
	}
	return m.folder.Create(name)
}

func (m met) Ensure(name string) (redirectlog.File, error) {
	if strings.HasPrefix(name, "b.") {
		m.before(true)
	}
	return m.folder.Ensure(name)
}

func (m met) SyncFolder() error {
	m.before(false)
	return m.folder.SyncFolder()
}

// The first two ranges of an object come home at the same time. Each write must find the other's
// base, preserve it, and make its name durable before it is done.
func TestABaseThatIsBegunTwiceHasBothRanges(t *testing.T) {
	write := func(from uint64, text string) protocol.DiskOp {
		return protocol.DiskOp{Kind: protocol.WriteBase, Object: "o", From: from, To: from + uint64(len(text)),
			Data: []byte(text)}
	}
	for _, beforeBase := range []bool{true, false} {
		path := t.TempDir()
		f, err := redirectlog.OpenFolder(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		var d *Disk
		nested, synced := true, 0
		d, _, err = OpenDisk(met{folder{f, path}, func(base bool) {
			if !nested && base == beforeBase {
				nested = true
				before := synced
				if done := d.Do(write(0, "first")); done.Err != nil || synced == before {
					t.Errorf("a base is told to be durable whose name is not (%v)", done.Err)
				}
			}
			if !base {
				synced++
			}
		}}, 3)
		if err != nil {
			t.Fatal(err)
		}
		nested = false
		if done := d.Do(write(5, "second")); done.Err != nil || !nested {
			t.Fatal(nested, done.Err)
		}
		done := d.Do(protocol.DiskOp{Kind: protocol.ReadBase, Object: "o", To: 11,
			Sums: protocol.SumsOf(0, []byte("firstsecond"))})
		if string(done.Data) != "firstsecond" {
			t.Errorf("the base is %q, %v", done.Data, done.Err)
		}
		before := synced
		if done := d.Do(write(3, "third")); done.Err != nil || synced != before {
			t.Errorf("a name that lasts was made durable again, %v", done.Err)
		}
	}
}

// Fragments and bases need the log to show which of their bytes count. Without the log, the sweep
// would remove fragments, and base reads would fail as beyond the object's end.
func TestAStoreWithoutItsLogIsRefusedAndLeftAsItIs(t *testing.T) {
	for _, op := range []protocol.DiskOp{put([]byte("bytes")),
		{Kind: protocol.WriteBase, Object: "run/5", To: 3, Data: []byte("bas")}} {
		path := t.TempDir()
		d, _, err := open(t, path)
		if err != nil {
			t.Fatal(err)
		}
		must(t, d, op)
		d.end(t)
		log := filepath.Join(path, LogName)
		if err := os.Rename(log, log+".gone"); err != nil {
			t.Fatal(err)
		}
		var missing *redirectlog.MissingError
		for range 2 {
			f, err := redirectlog.OpenFolder(path)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = OpenDisk(folder{f, path}, 3)
			if _ = f.Close(); !errors.As(err, &missing) || !strings.Contains(err.Error(), log+" is not there") {
				t.Fatal(err)
			}
			left, err := os.ReadDir(path)
			if err != nil || len(left) != 2 {
				t.Fatalf("the folder has %v (%v)", left, err)
			}
		}
		if err := os.Rename(log+".gone", log); err != nil {
			t.Fatal(err)
		}
		if d, _, err = open(t, path); err != nil {
			t.Fatal(err)
		}
		d.end(t)
	}
}
