package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"hotbed/dataplane/service"
)

// plain returns a disk with 1 MB/s and no positioning time, for simple expected times.
func plain(depth int) DiskSpec {
	return DiskSpec{
		Model: service.Model{Bandwidth: 1e6, Size: 1 << 30},
		Depth: depth,
		MaxIO: 100e3,
	}
}

func TestALargeIOIsSplitAndEndsWithItsLastPart(t *testing.T) {
	k, r := New(), &recorder{}
	d := NewDisk(k, plain(4))
	if !d.Submit(k, IO{Bytes: 250e3}, r, 1) {
		t.Fatal("three parts did not find three of four tags")
	}
	if s := d.Stats(k); s.Queue != 3 || s.Reads != 3 || s.BytesRead != 250e3 {
		t.Fatalf("stats %+v", s)
	}
	k.Run()
	if len(r.at) != 1 || r.at[0] != 250*time.Millisecond {
		t.Fatalf("ended at %v", r.at)
	}
	if s := d.Stats(k); s.Busy != 250*time.Millisecond || s.Queue != 0 ||
		s.Wait != 300*time.Millisecond || s.Stalled != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestWaitersForTagsTakeTurns(t *testing.T) {
	k, r, admitted := New(), &recorder{}, &recorder{}
	d := NewDisk(k, plain(1))
	if !d.Submit(k, IO{Bytes: 100e3, Admitted: admitted}, r, 1) {
		t.Fatal("the first found no tag")
	}
	// Part 1 of 2 waits, 3 waits behind it, part 2 of 2 queues behind 3.
	if d.Submit(k, IO{Bytes: 200e3, Admitted: admitted}, r, 2) || d.Submit(k, IO{Bytes: 100e3}, r, 3) {
		t.Fatal("found a tag where there is one only")
	}
	if !d.Submit(k, IO{Write: true, Bytes: 100e3}, r, 4) {
		t.Fatal("writes have tags of their own")
	}
	k.Run()
	// The device serves in order of admission: 1, write 4, 2a, 3, 2b.
	want := []uint64{1, 4, 3, 2}
	at := []time.Duration{100, 200, 400, 500}
	for i := range want {
		if len(r.args) != len(want) || r.args[i] != want[i] || r.at[i] != at[i]*time.Millisecond {
			t.Fatalf("ended %v at %v, want %v at %v ms", r.args, r.at, want, at)
		}
	}
	if len(admitted.at) != 1 || admitted.args[0] != 2 || admitted.at[0] != 400*time.Millisecond {
		t.Errorf("admitted %v at %v", admitted.args, admitted.at)
	}
	// A task waited for a tag until 2b was admitted.
	if s := d.Stats(k); s.Stalled != 400*time.Millisecond || s.Blocked != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestABatchOfTagsIsHandedOverAtOnce(t *testing.T) {
	k, r := New(), &recorder{}
	spec := plain(3)
	spec.WakeBatch = 2
	d := NewDisk(k, spec)
	for i := range uint64(3) {
		d.Submit(k, IO{Bytes: 100e3}, r, i)
	}
	d.Submit(k, IO{Bytes: 200e3}, r, 3) // waits for two tags, until 200 ms
	d.Submit(k, IO{Bytes: 100e3}, r, 5) // and this I/O behind it, until 300 + 400 ms
	k.At(250*ms, Func(func(k *Kernel, _ uint64) {
		if s := d.Stats(k); s.Queue != 3 || s.Blocked != 1 {
			t.Errorf("at 250 ms %+v", s)
		}
	}), 0)
	k.At(350*ms, Func(func(k *Kernel, _ uint64) {
		// One tag is free, and a wake needs one more: a new arrival takes the free tag.
		if !d.Submit(k, IO{Bytes: 100e3}, r, 4) {
			t.Error("a free tag was not taken")
		}
	}), 0)
	k.Run()
	wantArrivals(t, r, 100*ms, 200*ms, 300*ms, 500*ms, 600*ms, 700*ms)
}

func TestSharedTags(t *testing.T) {
	k, r := New(), &recorder{}
	spec := plain(1)
	spec.Shared = true
	d := NewDisk(k, spec)
	d.Submit(k, IO{Bytes: 100e3}, r, 1)
	if d.Submit(k, IO{Write: true, Bytes: 100e3}, r, 2) {
		t.Fatal("a write found a tag beside the read")
	}
	k.Run()
	if len(r.at) != 2 || r.at[1] != 200*time.Millisecond {
		t.Errorf("ended at %v", r.at)
	}
}

func TestStalledTasks(t *testing.T) {
	k, r := New(), &recorder{}
	d := NewDisk(k, plain(2))
	node := &Occupancy{}
	osd, fio := &Occupancy{Parent: node}, &Occupancy{Parent: node}
	d.Submit(k, IO{Bytes: 100e3, Task: osd}, r, 1)             // asynchronous: nobody stalls
	d.Submit(k, IO{Bytes: 100e3, Sync: true, Task: osd}, r, 2) // sleeps until 200 ms
	d.Submit(k, IO{Bytes: 100e3, Task: fio}, r, 3)             // sleeps until 100 ms, for a tag
	k.RunUntil(time.Second)
	for name, c := range map[string]struct{ got, want time.Duration }{
		"osd":  {osd.Some(k.Now()), 200 * time.Millisecond},
		"fio":  {fio.Some(k.Now()), 100 * time.Millisecond},
		"node": {node.Some(k.Now()), 200 * time.Millisecond},
		"disk": {d.Stats(k).Stalled, 200 * time.Millisecond},
	} {
		if c.got != c.want {
			t.Errorf("%s stalled for %v, want %v", name, c.got, c.want)
		}
	}
	if got := node.Area(k.Now()); got != 0.3 {
		t.Errorf("stalled task-seconds %g, want 0.3", got)
	}
}

func TestACrashDropsEverything(t *testing.T) {
	k, r := New(), &recorder{}
	d := NewDisk(k, plain(2))
	for i := range uint64(10) {
		d.Submit(k, IO{Bytes: 100e3, Sync: i%2 == 0}, r, i)
	}
	k.RunUntil(150 * time.Millisecond)
	d.Crash(k)
	if !d.Down() || !d.Submit(k, IO{Bytes: 1}, r, 99) {
		t.Error("a crashed disk blocks")
	}
	k.RunUntil(time.Second)
	if len(r.args) != 1 {
		t.Fatalf("ended: %v", r.args)
	}
	s := d.Stats(k)
	if s.Busy != 150*time.Millisecond || s.Queue != 0 || s.Blocked != 0 ||
		s.Stalled != 150*time.Millisecond {
		t.Errorf("stats %+v", s)
	}
	d.Restart(k)
	d.Submit(k, IO{Bytes: 100e3}, r, 100)
	k.Run()
	if len(r.args) != 2 || r.at[1] != 1100*time.Millisecond {
		t.Errorf("after the restart: %v at %v", r.args, r.at)
	}
}

func TestASlowDisk(t *testing.T) {
	k, r := New(), &recorder{}
	d := NewDisk(k, plain(8))
	d.Submit(k, IO{Bytes: 100e3}, r, 1)
	d.Slow(3)
	d.Submit(k, IO{Bytes: 100e3}, r, 2)
	k.Run()
	if r.at[0] != 100*time.Millisecond || r.at[1] != 400*time.Millisecond {
		t.Errorf("ended at %v", r.at)
	}
}

func TestBadDisksAreRefused(t *testing.T) {
	for _, change := range []func(*DiskSpec){
		func(s *DiskSpec) { s.Depth = 0 },
		func(s *DiskSpec) { s.WakeBatch = 2 },
		func(s *DiskSpec) { s.MaxIO = -1 },
		func(s *DiskSpec) { s.Model.Bandwidth = 0 },
	} {
		spec := plain(1)
		change(&spec)
		if spec.Validate() == nil {
			t.Errorf("accepted %+v", spec)
		}
	}
}

// checkDisk drives a disk with a program in data and checks a disk's invariants. Every I/O ends
// once, and not too early. Tags never exceed the depth. The device is not idle while an I/O waits.
// Busy time equals the service time of the served requests.
func checkDisk(t *testing.T, data []byte) {
	if len(data) < 2 {
		return
	}
	spec := DiskSpec{
		Model:  service.Model{PositioningMean: 4 * time.Millisecond, Bandwidth: 60e6, Size: 1 << 30},
		Depth:  int(data[0]%7) + 1,
		Shared: data[1]%2 == 0,
	}
	spec.WakeBatch = int(data[1]>>1) % (spec.Depth + 1)
	k := New()
	d := NewDisk(k, spec)
	ended := map[uint64]time.Duration{}
	submitted := map[uint64]time.Duration{}
	blocked := map[uint64]bool{}
	var bytes, served int64
	admitted := Func(func(_ *Kernel, arg uint64) {
		if !blocked[arg] {
			t.Fatalf("I/O %d was admitted and had not been blocked", arg)
		}
		delete(blocked, arg)
	})
	sizes := map[uint64]int64{}
	done := Func(func(k *Kernel, arg uint64) {
		if _, twice := ended[arg]; twice || blocked[arg] {
			t.Fatalf("I/O %d ended twice or while blocked", arg)
		}
		ended[arg] = k.Now()
		served += sizes[arg]
		if least := spec.Model.Transfer(sizes[arg]); k.Now()-submitted[arg] < least-8 {
			t.Fatalf("I/O %d took %v, its transfer alone %v", arg, k.Now()-submitted[arg], least)
		}
	})
	var id uint64
	for data = data[2:]; len(data) >= 6; data = data[6:] {
		k.RunUntil(k.Now() + time.Duration(data[0])*time.Millisecond/4)
		size := int64(binary.LittleEndian.Uint16(data[1:]))%2000*1024 + 512
		offset := int64(binary.LittleEndian.Uint16(data[3:])) * 8192
		id++
		submitted[id], sizes[id] = k.Now(), size
		bytes += size
		op := IO{Write: data[5]&1 != 0, Sync: data[5]&2 != 0, Offset: offset, Bytes: size}
		op.Admitted = admitted
		if !d.Submit(k, op, done, id) {
			blocked[id] = true
		}
		s := d.Stats(k)
		most := spec.Depth
		if !spec.Shared {
			most *= 2
		}
		if s.Queue > most || s.Blocked != len(blocked) ||
			s.Blocked > 0 && s.Queue <= spec.Depth-max(1, spec.WakeBatch) {
			t.Fatalf("depth %d, blocked %d, stats %+v", spec.Depth, len(blocked), s)
		}
	}
	k.Run()
	s := d.Stats(k)
	if len(ended) != int(id) || served != bytes || s.BytesRead+s.BytesWritten != bytes {
		t.Fatalf("%d of %d I/Os ended, %d of %d bytes", len(ended), id, served, bytes)
	}
	if s.Queue != 0 || s.Blocked != 0 || s.Busy > k.Now() || d.tasks.Count() != 0 {
		t.Fatalf("at the end %+v", s)
	}
}

func FuzzDisk(f *testing.F) {
	f.Add([]byte{1, 1, 0, 255, 255, 0, 0, 0, 1, 255, 255, 0, 0, 3})
	f.Fuzz(checkDisk)
}

func TestDiskProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 200 {
		data := make([]byte, 2+6*rng.IntN(120))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		checkDisk(t, data)
	}
}
