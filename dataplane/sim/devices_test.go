package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/service"
)

const ms = time.Millisecond

// plain returns a disk with 1 MB/s and no positioning time, for simple expected times.
func plain(depth int) DiskSpec {
	return DiskSpec{Model: service.Model{Bandwidth: 1e6, Size: 1 << 30}, Depth: depth, MaxIO: 100e3}
}

// platter returns the disk of the local testbed.
func platter() DiskSpec {
	model := service.Model{PositioningMean: 12700 * time.Microsecond, Bandwidth: 150e6, Size: 6 << 30}
	return DiskSpec{Model: model, Depth: 32, MaxIO: 512 << 10}
}

// fio returns the paper's hotspot: four jobs of 16 random 4 KiB reads, each with its file.
func fio() BackgroundSpec { return BackgroundSpec{Jobs: 4, Depth: 16, Block: 4096, Range: 512 << 20} }

func wantEnds(t *testing.T, r *recorder, args []uint64, at ...time.Duration) {
	t.Helper()
	if fmt.Sprint(r.args, r.at) != fmt.Sprint(args, at) {
		t.Fatalf("ended %v at %v, want %v at %v", r.args, r.at, args, at)
	}
}

func TestWaitersForTagsTakeTurns(t *testing.T) {
	k, r, admitted := New(), &recorder{}, &recorder{}
	d := NewDisk(k, plain(1))
	if !d.Submit(k, IO{Bytes: 100e3, Admitted: admitted}, r, 1) {
		t.Fatal("the first found no tag")
	}
	// Part 1 of 2 waits, 3 waits behind it, part 2 of 2 queues behind 3.
	if d.Submit(k, IO{Write: true, Bytes: 200e3, Admitted: admitted}, r, 2) || d.Submit(k, IO{Bytes: 100e3}, r, 3) {
		t.Fatal("found a tag where there is one only")
	}
	k.Run()
	// The device serves in order of admission: 1, 2a, 3, 2b.
	wantEnds(t, r, []uint64{1, 3, 2}, 100*ms, 300*ms, 400*ms)
	wantEnds(t, admitted, []uint64{2}, 300*ms)
	// A task waited for a tag until 2b was admitted.
	if s := d.Stats(k); s.Stalled != 300*ms || s.Busy != 400*ms || s.BytesRead != 200e3 || s.BytesWritten != 200e3 {
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
	k.At(350*ms, Func(func(k *Kernel, _ uint64) {
		// One tag is free, and a wake needs one more: a new arrival takes the free tag.
		if !d.Submit(k, IO{Bytes: 100e3}, r, 4) {
			t.Error("a free tag was not taken")
		}
	}), 0)
	k.Run()
	wantEnds(t, r, []uint64{0, 1, 2, 3, 4, 5}, 100*ms, 200*ms, 300*ms, 500*ms, 600*ms, 700*ms)
}

func TestStalledTasks(t *testing.T) {
	k, r := New(), &recorder{}
	d := NewDisk(k, plain(2))
	osd, fio := &Occupancy{}, &Occupancy{}
	d.Slow(2)
	d.Submit(k, IO{Bytes: 50e3, Task: osd}, r, 1)             // asynchronous: nobody stalls
	d.Submit(k, IO{Bytes: 50e3, Sync: true, Task: osd}, r, 2) // sleeps until 200 ms
	d.Submit(k, IO{Bytes: 50e3, Task: fio}, r, 3)             // sleeps until 100 ms, for a tag
	k.RunUntil(time.Second)
	for name, c := range map[string]struct{ got, want time.Duration }{
		"osd": {osd.Some(k.Now()), 200 * ms}, "fio": {fio.Some(k.Now()), 100 * ms}, "disk": {d.Stats(k).Stalled, 200 * ms},
	} {
		if c.got != c.want {
			t.Errorf("%s stalled for %v, want %v", name, c.got, c.want)
		}
	}
}

// The disk is an M/G/1 queue: Poisson arrivals of random reads, served by the model. Adjacent seeks
// share an offset and are slightly correlated (docs/queue-disk.md).
func TestTheDiskIsMG1(t *testing.T) {
	random := NewStream(4, "disk")
	for trial := range uint64(6) {
		model := service.Model{
			PositioningMean: Seconds(exp(ln(1e-4) + random.Uniform()*ln(200))),
			Bandwidth:       exp(ln(1e7) + random.Uniform()*ln(100)),
			Size:            1 << (30 + random.IntN(12)),
		}
		block := int64(512) << random.IntN(10)
		rho := 0.2 + 0.6*random.Uniform()
		first, second := model.RandomMoments(block)
		k := New()
		// Tags never run out, so the queue is the device's own.
		d := NewDisk(k, DiskSpec{Model: model, Depth: 1 << 16, MaxIO: 1 << 20})
		load := BackgroundSpec{Jobs: 1, Depth: 1 << 15, Block: block, Range: model.Size, Rate: rho / first}
		b := StartBackground(k, load, d, NewStream(trial, "arrivals"))
		k.RunUntil(Seconds(400_000 * first / rho))
		wait := service.PollaczekKhinchine(rho/first, first, second)
		if got := b.Latency.Mean() - first; math.Abs(got/wait-1) > 0.06 {
			t.Errorf("trial %d, load %.2f: the mean wait is %g, M/G/1's is %g", trial, rho, got, wait)
		}
		if busy := d.Stats(k).Busy.Seconds() / k.Now().Seconds(); math.Abs(busy/rho-1) > 0.02 {
			t.Errorf("trial %d: busy %.3f at load %.3f", trial, busy, rho)
		}
		// Little's law over the device's queue.
		rate, number := float64(b.Latency.Count())/k.Now().Seconds(), d.Stats(k).QueueArea/k.Now().Seconds()
		if inside := rate * b.Latency.Mean(); math.Abs(inside/number-1) > 0.01 {
			t.Errorf("trial %d: %.1f reads/s of %.4f s, and %.3f in the queue", trial, rate, b.Latency.Mean(), number)
		}
	}
}

// sequential submits 1 MiB I/Os one after the other.
type sequential struct {
	disk        *Disk
	write       bool
	next, ended int64
}

func (s *sequential) Handle(k *Kernel, _ uint64) {
	s.ended++
	s.submit(k)
}

func (s *sequential) submit(k *Kernel) {
	s.disk.Submit(k, IO{Write: s.write, Offset: s.next, Bytes: 1 << 20}, s, 0)
	s.next += 1 << 20
}

// Compares the simulated disk with fio measurements on the queue disk (docs/queue-disk.md: 12 GiB,
// 4 ms, 60 MB/s; times in seconds). At depth 1 the real path adds its round trip to each I/O while
// the disk is idle. The model has no round trip, so it is faster by up to that time.
func TestTheDiskIsLikeTheQueueDiskUnderFio(t *testing.T) {
	model := service.Model{PositioningMean: 4 * ms, Bandwidth: 60e6, Size: 12 << 30}
	spec := DiskSpec{Model: model, Depth: 32, MaxIO: 512 << 10}
	const span = 100 * time.Second
	check := func(what string, got, measured, tolerance float64) {
		t.Helper()
		if math.Abs(got/measured-1) > tolerance {
			t.Errorf("%s: simulated %.4g, measured %.4g", what, got, measured)
		}
	}
	for _, c := range []struct {
		depth                    int
		iops, latency, tolerance float64
	}{{1, 235, 4.22e-3, 0.05}, {16, 246, 64.9e-3, 0.02}} {
		k := New()
		load := BackgroundSpec{Jobs: 1, Depth: c.depth, Block: 4096, Range: 12 << 30}
		b := StartBackground(k, load, NewDisk(k, spec), NewStream(1, "fio"))
		k.RunUntil(span)
		check("randread 4k IOPS", float64(b.Latency.Count())/span.Seconds(), c.iops, c.tolerance)
		check("randread 4k latency", b.Latency.Mean(), c.latency, c.tolerance)
	}
	for _, c := range []struct {
		write           bool
		depth           int
		rate, tolerance float64
	}{{true, 1, 55.5, 0.09}, {true, 4, 58.8, 0.03}, {false, 1, 57.1, 0.06}, {false, 4, 59.9, 0.01}} {
		k := New()
		s := &sequential{disk: NewDisk(k, spec), write: c.write}
		for range c.depth {
			s.submit(k)
		}
		k.RunUntil(span)
		check("sequential 1M MB/s", float64(s.ended<<20)/1e6/span.Seconds(), c.rate, c.tolerance)
	}
}

func TestALinkSerializesThenDelays(t *testing.T) {
	k, r := New(), &recorder{}
	l := NewLink(LinkSpec{Rate: 1e6, Delay: 5 * ms})
	l.Send(k, 10e3, r, 0)
	l.Send(k, 20e3, r, 1)
	k.Run()
	l.Send(k, 1e3, r, 2) // idle again
	k.Run()
	wantEnds(t, r, []uint64{0, 1, 2}, 15*ms, 35*ms, 41*ms)
	if l.Sent() != 31e3 {
		t.Errorf("sent %d", l.Sent())
	}
}

func TestAPartitionDelaysByItsLength(t *testing.T) {
	k, r := New(), &recorder{}
	l := NewLink(LinkSpec{Rate: 1e6, Delay: 5 * ms})
	l.Send(k, 10e3, r, 0) // would arrive at 15
	k.RunUntil(4 * ms)
	l.Cut(k)
	l.Cut(k) // no effect
	k.RunUntil(100 * ms)
	l.Send(k, 10e3, r, 1)
	k.RunUntil(104 * ms)
	l.Heal(k)
	l.Send(k, 10e3, r, 2)
	k.Run()
	wantEnds(t, r, []uint64{0, 1, 2}, 115*ms, 125*ms, 135*ms)
}

func TestDropForgetsWhatIsInTransit(t *testing.T) {
	for _, cut := range []bool{false, true} {
		k, r, lost := New(), &recorder{}, &recorder{}
		l := NewLink(LinkSpec{Rate: 1e6})
		l.Send(k, 10e3, lost, 0)
		l.Send(k, 10e3, lost, 1)
		k.RunUntil(5 * ms)
		if cut {
			l.Cut(k)
		}
		l.Drop(k)
		l.Heal(k)
		l.Send(k, 10e3, r, 0)
		k.Run()
		wantEnds(t, lost, nil)
		wantEnds(t, r, []uint64{0}, 15*ms)
	}
}

func TestADelayFaultKeepsTheOrder(t *testing.T) {
	k, r := New(), &recorder{}
	l := NewLink(LinkSpec{Rate: 1e6, Delay: ms})
	l.Delay(50 * ms)
	l.Send(k, 1e3, r, 0) // 1 + 1 + 50
	l.Delay(0)
	l.Send(k, 1e3, r, 1) // behind the first
	k.Run()
	wantEnds(t, r, []uint64{0, 1}, 52*ms, 52*ms)
}

// everything runs a model with every part: random requests use four disks behind links, with a
// background load, while disks and links fail. It hashes the end of every request.
func everything(seed uint64) string {
	k := New()
	sum := fnv.New64a()
	disks, links := make([]*Disk, 4), make([]*Link, 4)
	for i := range disks {
		disks[i], links[i] = NewDisk(k, platter()), NewLink(LinkSpec{Rate: 125e6, Delay: 50 * time.Microsecond})
		load := fio()
		load.Rate = 10
		StartBackground(k, load, disks[i], NewStream(seed, fmt.Sprintf("fio-%d", i)))
	}
	draws := NewStream(seed, "requests")
	var arrive Func
	arrive = func(k *Kernel, id uint64) {
		i := draws.IntN(4)
		op := IO{Write: draws.Bernoulli(0.3), Offset: draws.IntN(5<<30/4096) * 4096, Bytes: 4096 * (1 + draws.IntN(512))}
		disks[i].Submit(k, op, Func(func(k *Kernel, id uint64) {
			links[i].Send(k, op.Bytes, Func(func(k *Kernel, id uint64) { fmt.Fprintln(sum, k.Now().Nanoseconds(), id) }), id)
		}), id)
		k.After(Seconds(0.02*draws.Exp()*exp(draws.Normal())), arrive, id+1)
	}
	k.At(0, arrive, 0)
	for at, what := range map[time.Duration]func(){
		2 * time.Second: func() { disks[0].Slow(2.7) },
		3 * time.Second: func() { links[1].Cut(k) },
		4 * time.Second: func() { links[1].Heal(k) },
		5 * time.Second: func() { links[2].Delay(3 * ms) },
	} {
		k.At(at, Func(func(*Kernel, uint64) { what() }), 0)
	}
	k.RunUntil(10 * time.Second)
	fmt.Fprintln(sum, disks[0].Stats(k), links[1].Sent(), k.Events())
	return fmt.Sprintf("%016x", sum.Sum64())
}

func TestTheSameSeedGivesTheSameBits(t *testing.T) {
	first, second, other := everything(1), everything(1), everything(2)
	if want := "6055a64906a97c0b"; first != want || first != second || first == other {
		t.Errorf("seed 1 gave %s and %s, before it was %s; seed 2 %s", first, second, want, other)
	}
}

// Events cost no allocation once the queue has reached its largest size.
func TestEventsAllocateNothing(t *testing.T) {
	k := New()
	StartBackground(k, fio(), NewDisk(k, platter()), NewStream(1, "fio"))
	k.RunUntil(200 * time.Second)
	if n := testing.AllocsPerRun(5, func() { k.RunUntil(k.Now() + 10*time.Second) }); n > 5 {
		t.Errorf("%g allocations in 10 s", n)
	}
}

// A processor with a fused multiply-add rounds x*y + z once instead of twice, and Go permits it.
// The compiled code of this package and of its dependencies must contain none on such a machine.
func TestNothingIsFusedOnMachinesThatCould(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the standard library for another machine")
	}
	compiler, err := exec.LookPath("go") // go test puts its own first in the path
	if err != nil {
		t.Skip("no Go toolchain: ", err)
	}
	build := exec.Command(compiler, "build", "-gcflags=-S", "./...", "../service", "../enforcer", "../estimator")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "FMULD") {
		t.Fatal("the listing has no floating-point product at all")
	}
	fused := regexp.MustCompile(`(?m)^.*\((\S+\.go:\d+)\)\s+FN?M(?:ADD|SUB)[DS]\s.*$`)
	for _, match := range fused.FindAllStringSubmatch(string(out), -1) {
		t.Errorf("%s multiplies and adds at once", match[1])
	}
}
