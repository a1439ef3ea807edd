package radosstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"hotbed/dataplane/tests/mempool"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/storetest"
	"hotbed/dataplane/twochoice"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
)

// inMemory is a disk on a pool in memory, without resources to release.
type inMemory struct{ *filestore.Disk }

func (inMemory) Abandon() error { return nil }

func TestAPoolKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Open {
		pool := mempool.New()
		return func() (storetest.Disk, filestore.Found, error) {
			d, found, err := OpenDisk(pool, storetest.Node, 16)
			return inMemory{d}, found, err
		}
	})
}

func opened(t *testing.T, pool Pool) *filestore.Disk {
	t.Helper()
	d, _, err := OpenDisk(pool, 3, 1)
	must.Succeed(t, err)
	return d
}

func TestDamagedNamesOfTheLogAreRefused(t *testing.T) {
	pool := mempool.New()
	d := opened(t, pool)
	for i := range uint64(5) {
		storetest.Must(t, d, protocol.DiskOp{Kind: protocol.WriteLog, Records: []protocol.Record{
			{Note: protocol.Note{Kind: protocol.OfFence, Write: protocol.WriteID{Client: 1, Seq: i + 1}}}}})
	}
	names := pool.Objects[namesName]
	for at := range names {
		pool.Objects[namesName] = bytes.Clone(names)
		pool.Objects[namesName][at] ^= 1
		_, _, err := OpenDisk(pool, 3, 1)
		must.Refuse(t, err, namesName)
	}
	pool.Objects[namesName] = names
	if _, _, err := OpenDisk(pool, 4, 1); err == nil || !strings.Contains(err.Error(), "3") {
		t.Errorf("another agent's log is taken: %v", err)
	}
	opened(t, pool)
}

func TestAPoolOfSomebodyElseIsLeftAlone(t *testing.T) {
	for _, name := range []string{"rbd_header.1", "file", "l.x", "l.1", "bench"} {
		pool := mempool.New()
		pool.Objects[name] = []byte("theirs")
		_, _, err := OpenDisk(pool, 0, 1)
		if err == nil || !strings.Contains(err.Error(), "pool/"+name) || len(pool.Objects) != 1 {
			t.Errorf("%s: %v, and %d objects", name, err, len(pool.Objects))
		}
	}
}

func TestAPoolWithoutPartOfItsLogIsRefusedAndLeftAsItIs(t *testing.T) {
	pool := mempool.New()
	d := opened(t, pool)
	storetest.Must(t, d, storetest.Put(storetest.Name, []byte("bytes")))
	var long []protocol.Record // three chunks of the log
	for i := range 40_000 {
		object := twochoice.Object(fmt.Sprintf("%0250d", i))
		long = append(long, protocol.Record{Change: twochoice.Record{Object: object},
			Note: protocol.Note{Kind: protocol.ObjectIs, Value: 1}})
	}
	storetest.Must(t, d, protocol.DiskOp{Kind: protocol.CompactLog, Records: long})
	pieces := 0
	for pool.Objects[chunkName(2, uint64(pieces))] != nil {
		pieces++
	}
	if pieces < 3 {
		t.Fatalf("the log has %d pieces", pieces)
	}
	refused := func(want string, gone ...string) {
		t.Helper()
		before := maps.Clone(pool.Objects)
		for _, object := range gone {
			delete(pool.Objects, object)
		}
		left := maps.Clone(pool.Objects)
		_, _, err := OpenDisk(pool, 3, 1)
		must.Refuse(t, err, want)
		if !slices.Equal(slices.Sorted(maps.Keys(pool.Objects)), slices.Sorted(maps.Keys(left))) {
			t.Errorf("without %v: objects were removed or made", gone)
		}
		pool.Objects = before
	}
	refused("pool/"+namesName+" is not there", namesName)
	refused("pool/"+chunkName(2, 0), chunkName(2, 0))
	refused("pool/"+chunkName(2, 1)+" is not there", chunkName(2, 1))
	var log []string
	for i := range pieces {
		log = append(log, chunkName(2, uint64(i)))
	}
	refused("is not there", append(log, namesName)...)
	refused("is corrupt", log...)
	refused("is corrupt", log[pieces-1])
	opened(t, pool)
}

func TestWhatACrashLeftOfARewriteIsRemoved(t *testing.T) {
	pool := mempool.New()
	d := opened(t, pool)
	storetest.Must(t, d, protocol.DiskOp{Kind: protocol.WriteLog, Records: []protocol.Record{
		{Note: protocol.Note{Kind: protocol.OfFence, Write: storetest.Name}}}})
	pool.Objects[chunkName(7, 0)], pool.Objects[chunkName(7, 1)] = []byte("half"), []byte("half")
	_, found, err := OpenDisk(pool, 3, 1)
	if err != nil || len(found.Records) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, chunk := range []string{chunkName(7, 0), chunkName(7, 1)} {
		if pool.Objects[chunk] != nil {
			t.Errorf("%s is still there", chunk)
		}
	}
}

func TestAFullPoolIsReportedAndLosesNothing(t *testing.T) {
	pool := mempool.New()
	d := opened(t, pool)
	record := protocol.Record{Note: protocol.Note{Kind: protocol.OfFence, Write: storetest.Name}}
	storetest.Must(t, d, protocol.DiskOp{Kind: protocol.WriteLog, Records: []protocol.Record{record}})
	pool.Full = true
	for _, op := range []protocol.DiskOp{storetest.Put(storetest.Name, []byte("x")),
		{Kind: protocol.WriteBase, Object: "o", To: 1, Data: []byte("x")},
		{Kind: protocol.WriteLog, Records: []protocol.Record{record}},
		{Kind: protocol.CompactLog, Records: []protocol.Record{record}}} {
		if done := d.Do(op); !errors.Is(done.Err, protocol.ErrFull) {
			t.Errorf("operation %d: %v", op.Kind, done.Err)
		}
	}
	pool.Full = false
	storetest.Must(t, d, protocol.DiskOp{Kind: protocol.WriteLog, Records: []protocol.Record{record}})
	_, found, err := OpenDisk(pool, 3, 1)
	if err != nil || len(found.Records) != 2 || len(found.Fragments) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestAWholeFragmentIsReadInOneOperation(t *testing.T) {
	pool := mempool.New()
	d := opened(t, pool)
	storetest.Must(t, d, storetest.Put(storetest.Name, make([]byte, 300_000)))
	pool.Reads = 0
	storetest.Must(t, d, storetest.Get(storetest.Name, 0, 300_000))
	if pool.Reads != 1 {
		t.Errorf("it took %d reads", pool.Reads)
	}
	storetest.Must(t, d, storetest.Get(storetest.Name, 199_000, 199_001))
	if pool.Reads != 3 {
		t.Errorf("a part in its middle took %d reads", pool.Reads-1)
	}
}

// removing is a pool that loses an object between two reads of it.
type removing struct {
	*mempool.Pool
	after int // reads
}

func (r *removing) Read(name string, b []byte, offset uint64) (int, error) {
	n, err := r.Pool.Read(name, b, offset)
	if r.after--; r.after == 0 {
		delete(r.Objects, name)
	}
	return n, err
}

// A fragment is removed while several operations read it. The fragment is gone, but the disk is
// fine.
func TestAFragmentThatIsDroppedWhileItIsReadIsGone(t *testing.T) {
	pool := &removing{Pool: mempool.New()}
	d := opened(t, pool)
	storetest.Must(t, d, storetest.Put(storetest.Name, make([]byte, 500_000)))
	pool.after = 1
	if done := d.Do(storetest.Get(storetest.Name, 399_000, 399_001)); !errors.Is(done.Err, protocol.ErrGone) {
		t.Error(done.Err)
	}
}

func TestAFileThatIsCutStaysSo(t *testing.T) {
	for _, size := range []int64{0, 1, chunkSize - 1, chunkSize, chunkSize + 7} {
		pool := mempool.New()
		f, err := openFiles(pool, nil)
		must.Succeed(t, err)
		file, err := f.Create(filestore.LogName)
		must.Succeed(t, err)
		data := bytes.Repeat([]byte("x"), chunkSize+9)
		_, err = file.WriteAt(data, 0)
		must.Succeed(t, err)
		must.Succeed(t, file.Truncate(size))
		if file, err = f.Open(filestore.LogName); err != nil {
			t.Fatal(err)
		}
		if got, err := file.Size(); got != size || err != nil {
			t.Errorf("cut to %d it has %d bytes, %v", size, got, err)
		}
	}
}
