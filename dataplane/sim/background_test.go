package sim

import (
	"math"
	"testing"
	"time"

	"hotbed/dataplane/service"
)

// platter returns the disk of the local testbed.
func platter() DiskSpec {
	return DiskSpec{
		Model: service.Model{PositioningMean: 12700 * time.Microsecond, Bandwidth: 150e6, Size: 6 << 30},
		Depth: 32,
	}
}

// fio returns the paper's hotspot: four jobs of 16 random 4 KiB reads, each with its file.
func fio() BackgroundSpec {
	return BackgroundSpec{Jobs: 4, Depth: 16, Block: 4096, Offset: 1 << 20, Range: 512 << 20}
}

func TestAClosedBackgroundLoadFillsTheQueue(t *testing.T) {
	k := New()
	d := NewDisk(k, platter())
	task := &Occupancy{}
	b := NewBackground(fio(), d, task, NewStream(1, "fio"))
	b.Start(k)
	k.RunUntil(time.Second)
	if s := d.Stats(k); s.Queue != 32 || s.Blocked < 1 || s.Blocked > 4 {
		t.Fatalf("64 reads of four tasks on 32 tags: %+v", s)
	}
	b.Latency.Reset()
	before := d.Stats(k)
	k.RunUntil(61 * time.Second)
	s := d.Stats(k)
	if busy := s.Busy - before.Busy; busy != time.Minute {
		t.Errorf("busy for %v of a minute", busy)
	}
	// Little's law over the device's queue and the tasks that wait for a tag.
	rate := float64(b.Latency.Count()) / 60
	number := s.QueueArea - before.QueueArea + task.Area(k.Now())
	if inside := rate * b.Latency.Mean() * 60; math.Abs(inside/number-1) > 0.03 {
		t.Errorf("%.1f reads/s of %.4f s are %.0f, counted %.0f", rate, b.Latency.Mean(), inside, number)
	}
	if stalled := task.Some(k.Now()); stalled < 55*time.Second {
		t.Errorf("the load was stalled for %v of 61 s", stalled)
	}
}

func TestASynchronousLoadStallsForItsService(t *testing.T) {
	k := New()
	d := NewDisk(k, platter())
	task := &Occupancy{}
	spec := fio()
	spec.Jobs, spec.Depth, spec.Sync, spec.Rate = 1, 1, true, 20
	b := NewBackground(spec, d, task, NewStream(2, "fio"))
	b.Start(k)
	k.RunUntil(200 * time.Second)
	busy, stalled := d.Stats(k).Busy, task.Some(k.Now())
	if busy != stalled {
		t.Errorf("one synchronous task: busy %v, stalled %v", busy, stalled)
	}
	if n := float64(b.Latency.Count()); math.Abs(n/4000-1) > 0.06 {
		t.Errorf("%g of about 4000 reads", n)
	}
	b.Stop(k)
	if b.Running() {
		t.Error("runs on")
	}
	before := b.Latency.Count()
	k.Run()
	if b.Latency.Count()-before > 1 {
		t.Error("reads after the stop")
	}
}

func TestAnOfferedLoadBelowTheDisksRateIsServedAtItsRate(t *testing.T) {
	k := New()
	d := NewDisk(k, platter())
	spec := fio()
	spec.Rate = 15 // four times this is 60 of about 125 per second with these short seeks
	b := NewBackground(spec, d, nil, NewStream(3, "fio"))
	b.Start(k)
	k.RunUntil(500 * time.Second)
	if rate := float64(b.Latency.Count()) / 500; math.Abs(rate/60-1) > 0.03 {
		t.Errorf("%.1f reads/s, offered 60", rate)
	}
}

func TestABackgroundLoadGoesOnAfterACrash(t *testing.T) {
	k := New()
	d := NewDisk(k, platter())
	task := &Occupancy{}
	b := NewBackground(fio(), d, task, NewStream(4, "fio"))
	b.Start(k)
	k.RunUntil(time.Second)
	d.Crash(k)
	b.Forget()
	if task.Count() != 0 {
		t.Errorf("%d tasks stalled on a dead disk", task.Count())
	}
	k.RunUntil(2 * time.Second)
	ended := b.Latency.Count()
	d.Restart(k)
	b.Start(k)
	b.Start(k) // the load is already on
	k.RunUntil(3 * time.Second)
	if s := d.Stats(k); b.Latency.Count() == ended || s.Queue != 32 {
		t.Errorf("after the restart %d reads, stats %+v", b.Latency.Count()-ended, s)
	}
}

func TestBadBackgroundLoadsAreRefused(t *testing.T) {
	for _, change := range []func(*BackgroundSpec){
		func(s *BackgroundSpec) { s.Jobs = 0 },
		func(s *BackgroundSpec) { s.Depth = 0 },
		func(s *BackgroundSpec) { s.Sync = true },
		func(s *BackgroundSpec) { s.Block = 1 << 40 },
		func(s *BackgroundSpec) { s.Offset = 6 << 30 },
		func(s *BackgroundSpec) { s.Rate = -1 },
		func(s *BackgroundSpec) { s.Rate = math.NaN() },
	} {
		spec := fio()
		change(&spec)
		if spec.Validate(6<<30) == nil {
			t.Errorf("accepted %+v", spec)
		}
	}
}
