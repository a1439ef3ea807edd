package filestore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/storetest"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/redirectlog"
)

// opened is a disk with its folder.
type opened struct {
	*filestore.Disk
	folder *filestore.Folder
}

func (o opened) Close() error   { return errors.Join(o.Disk.Close(), o.folder.Close()) }
func (o opened) Abandon() error { return o.folder.Close() }

func open(t testing.TB, path string) (opened, filestore.Found, error) {
	t.Helper()
	f, err := filestore.OpenFolder(path)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = f.Close() })
	d, found, err := filestore.OpenDisk(f, storetest.Node)
	return opened{d, f}, found, err
}

// mustOpen opens a new folder.
func mustOpen(t testing.TB) (opened, string) {
	t.Helper()
	path := t.TempDir()
	d, _, err := open(t, path)
	must.Succeed(t, err)
	return d, path
}

// end closes a disk and releases its folder.
func (o opened) end(t testing.TB) {
	t.Helper()
	must.Succeed(t, o.Close())
}

func TestAFolderKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		path := t.TempDir()
		return func() (storetest.Disk, filestore.Found, error) {
			d, found, err := open(t, path)
			return d, found, err
		}
	})
}

func TestEveryDamagedByteOfAFragmentIsFound(t *testing.T) {
	d, path := mustOpen(t)
	data := storetest.Bytes(300)
	storetest.Must(t, d, storetest.Put(storetest.Name, data))
	file := filepath.Join(path, "f.0000000000000abc.11")
	whole := must.Read(t, file)
	for at := range whole {
		bad := bytes.Clone(whole)
		bad[at] ^= 1 << (at % 8)
		must.Succeed(t, os.WriteFile(file, bad, 0o600))
		if done := d.Do(storetest.Get(storetest.Name, 0, 300)); done.Err == nil {
			t.Fatalf("byte %d was damaged and %d bytes were read", at, len(done.Data))
		}
	}
	for _, n := range []int{0, 10, 60, len(whole) - 1} {
		must.Succeed(t, os.WriteFile(file, whole[:n], 0o600))
		if done := d.Do(storetest.Get(storetest.Name, 0, 300)); !errors.Is(done.Err, protocol.ErrDamaged) {
			t.Fatalf("of a file cut to %d bytes: %v", n, done.Err)
		}
	}
	// An intact fragment under another fragment's name must be refused.
	other := storetest.Put(storetest.Name, storetest.Bytes(300))
	other.Write.Seq++
	storetest.Must(t, d, other)
	must.Succeed(t, os.Rename(filepath.Join(path, "f.0000000000000abc.12"), file))
	if done := d.Do(storetest.Get(storetest.Name, 0, 300)); !errors.Is(done.Err, protocol.ErrDamaged) {
		t.Fatalf("another fragment was read: %v", done.Err)
	}
	d.end(t)
	// The store is served without the fragment.
	_, found, err := open(t, path)
	if err != nil || len(found.Fragments) != 1 || found.Fragments[0].Write != storetest.Name ||
		!strings.Contains(found.Fragments[0].Damage, file) {
		t.Errorf("a fragment in another's place: %+v, %v", found.Fragments, err)
	}
}

func TestADamagedBaseIsFound(t *testing.T) {
	const block = 64 << 10 // bytes of a sum
	d, path := mustOpen(t)
	data := storetest.Bytes(block + 100)
	done := d.Do(protocol.DiskOp{Kind: protocol.WriteBase, Object: "o", From: 10, To: 10 + uint64(len(data)), Data: data})
	if done.Err != nil || len(done.Sums) != 2 {
		t.Fatalf("%+v", done)
	}
	file := filepath.Join(path, filestore.BaseName("o"))
	whole := must.Read(t, file)
	read := func(from, to uint64, sums []protocol.Sum) protocol.DiskDone {
		return d.Do(protocol.DiskOp{Kind: protocol.ReadBase, Object: "o", From: from, To: to, Sums: sums})
	}
	if got := read(20, block+50, done.Sums); !bytes.Equal(got.Data, data[10:block+40]) {
		t.Errorf("%d bytes, %v", len(got.Data), got.Err)
	}
	if got := read(0, 20, done.Sums[:1]); !bytes.Equal(got.Data, append(make([]byte, 10), data[:10]...)) {
		t.Errorf("before the first byte that was written: %v, %v", got.Data, got.Err)
	}
	for _, at := range []int{10, 10 + block, len(whole) - 1} {
		bad := bytes.Clone(whole)
		bad[at] ^= 1
		must.Succeed(t, os.WriteFile(file, bad, 0o600))
		for i, s := range done.Sums {
			got := read(s.From, s.From+1, done.Sums[i:i+1])
			if within := uint64(at) >= s.From && uint64(at) < s.To; within != errors.Is(got.Err, protocol.ErrDamaged) {
				t.Errorf("byte %d is damaged, read is %d: %v", at, s.From, got.Err)
			}
		}
	}
	must.Succeed(t, os.Remove(file))
	if got := read(10, 11, done.Sums[:1]); !errors.Is(got.Err, protocol.ErrDamaged) {
		t.Errorf("a base that is gone: %v", got.Err)
	}
}

func TestAFolderIsOneAgentsAndHasNoLeftovers(t *testing.T) {
	d, path := mustOpen(t)
	_, err := filestore.OpenFolder(path)
	must.Refuse(t, err, "another agent")
	d.end(t)
	for _, left := range []string{"t.0000000000000001.1", filestore.LogName + ".new"} {
		must.Succeed(t, os.WriteFile(filepath.Join(path, left), []byte("half"), 0o600))
	}
	if _, _, err := open(t, path); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v (%v)", left, err)
	}
}

func TestATornTailIsCutOffAndRecorded(t *testing.T) {
	d, path := mustOpen(t)
	for i := range uint64(5) {
		storetest.Must(t, d, protocol.DiskOp{Kind: protocol.WriteLog, Records: []protocol.Record{
			{Note: protocol.Note{Kind: protocol.OfFence, Write: protocol.WriteID{Client: 1, Seq: i + 1}}}}})
	}
	torn := must.Read(t, filepath.Join(path, filestore.LogName))
	// A kill during a call leaves the beginning of an append in the first copy. A separate record
	// marks that it was cut off: without it, acknowledged fragments could be swept.
	other := t.TempDir()
	copy(torn[len(bytes.TrimRight(torn[:4096], "\x00"))+8:], "RFRM")
	must.Succeed(t, os.WriteFile(filepath.Join(other, filestore.LogName), torn, 0o600))
	_, found, err := open(t, other)
	if err != nil || found.Recovery.TornBytes == 0 || len(found.Records) != 6 || found.Records[5] != protocol.CutRecord() {
		t.Fatalf("a torn log: %+v, %v", found, err)
	}
}

// met is a folder that runs `before` just before a base is opened or created, and just before names
// are made durable.
type met struct {
	*filestore.Folder
	before func(base bool)
}

func (m met) Create(name string) (redirectlog.File, error) {
	if strings.HasPrefix(name, "b.") {
		m.before(true)
	}
	return m.Folder.Create(name)
}

func (m met) Ensure(name string) (redirectlog.File, error) {
	if strings.HasPrefix(name, "b.") {
		m.before(true)
	}
	return m.Folder.Ensure(name)
}

func (m met) SyncFolder() error {
	m.before(false)
	return m.Folder.SyncFolder()
}

// The first two ranges of an object come home at the same time. Each write must find the other's
// base, preserve it, and make its name durable before it is done.
func TestABaseThatIsBegunTwiceHasBothRanges(t *testing.T) {
	write := func(from uint64, text string) protocol.DiskOp {
		return protocol.DiskOp{Kind: protocol.WriteBase, Object: "o", From: from, To: from + uint64(len(text)),
			Data: []byte(text)}
	}
	for _, beforeBase := range []bool{true, false} {
		f, err := filestore.OpenFolder(t.TempDir())
		must.Succeed(t, err)
		t.Cleanup(func() { _ = f.Close() })
		var d *filestore.Disk
		nested, synced := true, 0
		d, _, err = filestore.OpenDisk(met{f, func(base bool) {
			if !nested && base == beforeBase {
				nested = true
				before := synced
				if done := d.Do(write(0, "first")); done.Err != nil || synced == before {
					t.Errorf("a base is reported as durable, and its name is not (%v)", done.Err)
				}
			}
			if !base {
				synced++
			}
		}}, 3)
		must.Succeed(t, err)
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
	for _, op := range []protocol.DiskOp{storetest.Put(storetest.Name, []byte("bytes")),
		{Kind: protocol.WriteBase, Object: "run/5", To: 3, Data: []byte("bas")}} {
		d, path := mustOpen(t)
		storetest.Must(t, d, op)
		d.end(t)
		log := filepath.Join(path, filestore.LogName)
		must.Succeed(t, os.Rename(log, log+".gone"))
		for range 2 {
			refused, _, err := open(t, path)
			must.Refuse(t, err, log+" is not there")
			_ = refused.folder.Close()
			if left, err := os.ReadDir(path); err != nil || len(left) != 2 {
				t.Fatalf("the folder has %v (%v)", left, err)
			}
		}
	}
}

// failing is a folder with read and write errors that tests can set.
type failing struct {
	*filestore.Folder
	read, write error
}

type failingFile struct {
	redirectlog.File
	of *failing
}

func (f *failing) Open(name string) (redirectlog.File, error) {
	file, err := f.Folder.Open(name)
	return failingFile{file, f}, err
}

func (f *failing) Create(name string) (redirectlog.File, error) {
	file, err := f.Folder.Create(name)
	return failingFile{file, f}, err
}

func (f *failing) Ensure(name string) (redirectlog.File, error) {
	file, err := f.Folder.Ensure(name)
	return failingFile{file, f}, err
}

func (f failingFile) ReadAt(b []byte, offset int64) (int, error) {
	if err := f.of.read; err != nil {
		return 0, &fs.PathError{Op: "read", Path: "disk", Err: err}
	}
	return f.File.ReadAt(b, offset)
}

func (f failingFile) WriteAt(b []byte, offset int64) (int, error) {
	if err := f.of.write; err != nil {
		return 0, &fs.PathError{Op: "write", Path: "disk", Err: err}
	}
	return f.File.WriteAt(b, offset)
}

// Unreadable bytes are lost like damaged bytes. A file that cannot grow counts as full. An agent
// that stopped there would stop again at every such request. The outcome of a write that failed
// otherwise is unknown.
func TestAnErrorOfTheDiskIsKnown(t *testing.T) {
	folder, err := filestore.OpenFolder(t.TempDir())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = folder.Close() })
	disk := &failing{Folder: folder}
	d, _, err := filestore.OpenDisk(disk, 3)
	must.Succeed(t, err)
	base := protocol.DiskOp{Kind: protocol.WriteBase, Object: "o", To: 3, Data: []byte("abc")}
	for _, op := range []protocol.DiskOp{storetest.Put(storetest.Name, []byte("bytes")), base} {
		if done := d.Do(op); done.Err != nil {
			t.Fatal(done.Err)
		}
	}
	reads := []protocol.DiskOp{storetest.Get(storetest.Name, 1, 4), {Kind: protocol.ReadBase, Object: "o", To: 3,
		Sums: protocol.SumsOf(0, []byte("abc"))}}
	again := storetest.Put(storetest.Name, []byte("more"))
	again.Write.Seq++
	for _, c := range []struct {
		read, write, want error
		ops               []protocol.DiskOp
	}{
		{read: syscall.EIO, want: protocol.ErrDamaged, ops: reads},
		{read: syscall.EACCES, ops: reads},
		{write: syscall.EFBIG, want: protocol.ErrFull, ops: []protocol.DiskOp{again, base}},
		{write: syscall.EDQUOT, want: protocol.ErrFull, ops: []protocol.DiskOp{again, base}},
		{write: syscall.EIO, ops: []protocol.DiskOp{again, base}},
	} {
		disk.read, disk.write = c.read, c.write
		for _, op := range c.ops {
			done := d.Do(op)
			for _, known := range []error{protocol.ErrDamaged, protocol.ErrFull, protocol.ErrGone} {
				if errors.Is(done.Err, known) != (known == c.want) {
					t.Errorf("operation %d, disk %v %v: %v", op.Kind, c.read, c.write, done.Err)
				}
			}
			why := c.read
			if why == nil {
				why = c.write
			}
			if !errors.Is(done.Err, why) {
				t.Errorf("operation %d does not say why: %v", op.Kind, done.Err)
			}
		}
	}
	disk.read, disk.write = nil, nil
	if got := d.Do(storetest.Get(storetest.Name, 1, 4)); string(got.Data) != "yte" {
		t.Errorf("%q, %v", got.Data, got.Err)
	}
}

// liveEntries is the number of live entries for the log's measurements.
const liveEntries = 100_000

// entry returns the record of a redirected write of 1 MiB to one of 1000 objects.
func entry(kind twochoice.Kind, n int) protocol.Record {
	start := uint64(n/1000) << 20
	r := twochoice.Range{Start: start, End: start + 1<<20}
	return protocol.Record{Change: twochoice.Record{Kind: kind, Object: twochoice.Object(fmt.Sprintf("benchmark_data_%08d",
		n%1000)), Range: r, Receipt: twochoice.Receipt(n + 1), Location: twochoice.Location{Server: 1, Fragment: uint64(n)},
		Origin: r}, Note: protocol.Note{Kind: protocol.OfWrite, Write: protocol.WriteID{Client: 1, Seq: uint64(n) + 1}}}
}

func snapshot() protocol.DiskOp {
	op := protocol.DiskOp{Kind: protocol.CompactLog}
	for n := range liveEntries {
		op.Records = append(op.Records, entry(twochoice.Held, n))
	}
	return op
}

// BenchmarkCommit makes one change durable, BenchmarkCompact rewrites a log of 100,000 live entries,
// and BenchmarkOpen reads it and rebuilds the table.
func BenchmarkCommit(b *testing.B) {
	d, _ := mustOpen(b)
	for n := range b.N {
		storetest.Must(b, d, protocol.DiskOp{Kind: protocol.WriteLog, Records: []protocol.Record{entry(twochoice.Redirected, n)}})
	}
}

func BenchmarkCompact(b *testing.B) {
	d, path := mustOpen(b)
	op := snapshot()
	b.ResetTimer()
	before := command.ProcessorTime()
	for range b.N {
		storetest.Must(b, d, op)
	}
	report(b, before)
	info, err := os.Stat(filepath.Join(path, filestore.LogName))
	must.Succeed(b, err)
	b.ReportMetric(float64(info.Size())/liveEntries, "B/entry")
}

func BenchmarkOpen(b *testing.B) {
	d, path := mustOpen(b)
	storetest.Must(b, d, snapshot())
	d.end(b)
	b.ResetTimer()
	before := command.ProcessorTime()
	for range b.N {
		d, found, err := open(b, path)
		if err != nil || len(found.Records) != liveEntries {
			b.Fatal(err)
		}
		table := twochoice.NewTable(0, 8, protocol.MaxOffset)
		for _, r := range found.Records {
			_, err := table.Apply(r.Change, nil)
			must.Succeed(b, err)
		}
		d.end(b)
	}
	report(b, before)
}

// report reports processor time per operation, which other processes do not affect.
func report(b *testing.B, before time.Duration) {
	b.ReportMetric(1e3*(command.ProcessorTime()-before).Seconds()/float64(b.N), "cpu-ms/op")
}
