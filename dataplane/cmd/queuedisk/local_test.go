package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hotbed/dataplane/internal/queuedisk"
	"hotbed/dataplane/service"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/process"
)

// local skips a test that mounts, unless such tests are enabled and possible.
func local(t *testing.T) {
	t.Helper()
	if os.Getenv("HOTBED_LOCAL") != "1" {
		t.Skip("mounts a real disk: set HOTBED_LOCAL=1 to run it (as root)")
	}
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("there is no /dev/fuse on this machine")
	}
}

// running is a queue disk in its own process.
type running struct {
	process.Process
	dir, mount, control, pid string
}

// start runs a 64 MiB disk on the layers in dir and returns once the disk is usable.
func start(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	r := &running{dir: dir, mount: filepath.Join(dir, "mount"), control: filepath.Join(dir, "control"),
		pid: filepath.Join(dir, "pid")}
	_ = os.Mkdir(r.mount, 0o700)
	args = append([]string{"--layer", filepath.Join(dir, "base"), "--size", "64MiB",
		"--mount", r.mount, "--control", r.control, "--pid-file", r.pid}, args...)
	t.Cleanup(func() { _ = syscall.Unmount(r.mount, syscall.MNT_DETACH) }) // once it is killed
	r.Start(t, nil, args...)
	must.Come(t, "the disk answers", func() bool { return queuedisk.Ask(r.control, `{"op":"ping"}`, nil) == nil })
	return r
}

func (r *running) open(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(r.mount, "disk"), os.O_RDWR, 0)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func (r *running) ask(t *testing.T, line string) queuedisk.Stats {
	t.Helper()
	var s queuedisk.Stats
	if err := queuedisk.Ask(r.control, line, &s); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return s
}

func mounted(t *testing.T, dir string) bool {
	t.Helper()
	table := must.Read(t, "/proc/self/mounts")
	return strings.Contains(string(table), " "+dir+" ")
}

func TestTheDiskHoldsWhatWasWrittenAndEndsCleanly(t *testing.T) {
	local(t)
	r := start(t, t.TempDir(), "--positioning", "0s", "--bandwidth", "10GB/s")
	f := r.open(t)
	ref := make([]byte, 64<<20)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		off, n := rng.Int64N(64<<11)*512, (rng.IntN(2600)+1)*512
		n = min(n, int(int64(len(ref))-off))
		for i := range n {
			ref[off+int64(i)] = byte(rng.Uint32())
		}
		_, err := f.WriteAt(ref[off:off+int64(n)], off)
		must.Succeed(t, err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("fsync: %v", err)
	}
	got := make([]byte, len(ref))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, ref) {
		t.Fatalf("the disk differs: %v", err)
	}
	if n, err := f.ReadAt(make([]byte, 512), 64<<20); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a read past the end: %d, %v", n, err)
	}
	if _, err := f.WriteAt([]byte{1}, 64<<20); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write past the end: %v", err)
	}
	_ = f.Close()
	_ = r.Command.Process.Signal(syscall.SIGTERM)
	if err := r.Command.Wait(); err != nil || r.Log.Len() > 0 {
		t.Errorf("end: %v %s", err, r.Log.String())
	}
	for _, left := range []string{r.control, r.pid} {
		if _, err := os.Stat(left); err == nil {
			t.Errorf("%s is left behind", left)
		}
	}
	if mounted(t, r.mount) {
		t.Error("still mounted")
	}
	layer, err := os.ReadFile(filepath.Join(r.dir, "base"))
	if err != nil || !bytes.Equal(layer, ref) {
		t.Errorf("the layer file differs: %v", err)
	}
}

func TestKilledItIsUnmountedLazilyAndStartsAgain(t *testing.T) {
	local(t)
	dir := t.TempDir()
	r := start(t, dir, "--positioning", "0s", "--bandwidth", "10GB/s")
	f := r.open(t)
	want := bytes.Repeat([]byte("kept"), 1<<18)
	_, err := f.WriteAt(want, 12345*512)
	must.Succeed(t, err)
	r.Kill()

	out, _ := exec.Command(os.Args[0], "--layer", filepath.Join(dir, "base"),
		"--mount", r.mount).CombinedOutput()
	if !strings.Contains(string(out), "umount -l") {
		t.Errorf("on the dead mount: %s", out)
	}
	if err := syscall.Unmount(r.mount, syscall.MNT_DETACH); err != nil { // umount -l, file still open
		t.Fatal(err)
	}
	r = start(t, dir, "--layer", filepath.Join(dir, "top"))
	got := make([]byte, len(want))
	if _, err := r.open(t).ReadAt(got, 12345*512); err != nil || !bytes.Equal(got, want) {
		t.Errorf("after a kill and under a new layer: %v", err)
	}
}

func TestInUseItLetsGoAndSaysSo(t *testing.T) {
	local(t)
	r := start(t, t.TempDir())
	f := r.open(t)
	_ = r.Command.Process.Signal(syscall.SIGTERM)
	err := r.Command.Wait()
	if err == nil || !strings.Contains(r.Log.String(), "still in use") {
		t.Errorf("end of a disk in use: %v %s", err, r.Log.String())
	}
	if mounted(t, r.mount) {
		t.Error("still mounted")
	}
	if _, err := f.ReadAt(make([]byte, 512), 0); err == nil {
		t.Error("what used it sees no error")
	}
}

func TestConcurrentReadsWaitInOneQueue(t *testing.T) {
	local(t)
	r := start(t, t.TempDir(), "--positioning", "20ms", "--bandwidth", "60MB/s")
	f := r.open(t)
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if _, err := f.ReadAt(make([]byte, 4096), int64(i*7%10)<<22); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	took := time.Since(begin).Seconds()
	s := r.ask(t, `{"op":"stats"}`)
	if s.Requests != 10 || took < s.BusyS || s.WaitS < 2*s.BusyS || s.Queue != 0 {
		t.Errorf("10 at once took %.3f s: %+v", took, s)
	}
	// Even in the worst order, each of these offsets pays the settling share.
	if least := 10 * 0.02 * service.SettleShare; s.BusyS < least {
		t.Errorf("busy %.3f s, at least %.3f s", s.BusyS, least)
	}
}

func TestControlOfARunningDisk(t *testing.T) {
	local(t)
	r := start(t, t.TempDir(), "--positioning", "500ms", "--bandwidth", "1MB/s")
	f := r.open(t)
	read := func(off int64) (time.Duration, error) {
		begin := time.Now()
		_, err := f.ReadAt(make([]byte, 4096), off)
		return time.Since(begin), err
	}
	if took, err := read(32 << 20); err != nil || took < 200*time.Millisecond {
		t.Errorf("shaped: %v, %v", took, err)
	}
	r.ask(t, `{"op":"shape","on":false}`)
	if took, err := read(8 << 20); err != nil || took > 150*time.Millisecond {
		t.Errorf("shaping off: %v, %v", took, err)
	}
	r.ask(t, `{"op":"shape","on":true}`)
	r.ask(t, `{"op":"set","positioning_us":1000,"bandwidth_bytes":60e6}`)
	if took, err := read(48 << 20); err != nil || took > 150*time.Millisecond {
		t.Errorf("1 ms: %v, %v", took, err)
	}
	r.ask(t, `{"op":"fault","slow":500}`)
	if took, err := read(16 << 20); err != nil || took < 200*time.Millisecond {
		t.Errorf("500 times slower: %v, %v", took, err)
	}
	r.ask(t, `{"op":"fault","slow":1,"error":true}`)
	if _, err := read(24 << 20); !errors.Is(err, syscall.EIO) {
		t.Errorf("error fault, read: %v", err)
	}
	if _, err := f.WriteAt([]byte("lost"), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("error fault, write: %v", err)
	}
	r.ask(t, `{"op":"fault","error":false}`)
	got := make([]byte, 4)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) == "lost" {
		t.Errorf("after the fault: %q, %v", got, err)
	}
}

// lateEnough is the mean lateness above which a machine cannot hold a disk to 10 % of M/G/1. On a
// quiet machine, alarms and generators are late by less than 0.1 ms.
const lateEnough = 200e-6

// TestMG1 checks the mean wait of wall-clock disks against M/G/1 at 80 % load. Four disks in
// parallel serve a quarter of the requests each, from independent arrivals. Together they give as
// many samples as one disk in four times the time, and each uses a few percent of a CPU. At 4 ms
// they serve three times as many requests per second as at the testbed's 12.7 ms.
//
// A busy machine can only lengthen waits. So the lower bound on waits and the disks' utilization
// are checked everywhere. The upper bound (10 %) is checked only where alarms and generators keep
// time. Each attempt is logged; `hotbed bench --only queuedisk` measures.
func TestMG1(t *testing.T) {
	local(t)
	queuedisk.BecomeRealtime()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(checkProcs)) // as in `queuedisk check`
	const attempts = 3
	onTime := false
	for attempt := range attempts {
		got := sideBySide(t, 4, 8000)
		t.Logf("attempt %d: the mean wait is %+.1f %% from M/G/1, the disks were busy for %.1f %%, alarms late "+
			"by %.3f ms, generators by %.3f ms", attempt+1, 100*got.apart, 100*got.busy, 1e3*got.alarm,
			1e3*got.generator)
		if got.apart < -queuedisk.Tolerance {
			t.Fatalf("the mean wait is %+.1f %% from M/G/1: shorter, which no machine makes it", 100*got.apart)
		}
		if got.busy < 0.75 || got.busy > 0.85 {
			t.Fatalf("80 %% of the disks' time was asked for, they were busy for %.1f %%", 100*got.busy)
		}
		if got.apart <= queuedisk.Tolerance {
			return
		}
		onTime = onTime || max(got.alarm, got.generator) <= lateEnough
	}
	if onTime {
		t.Fatal("the mean wait is more than 10 % above M/G/1 on a machine that keeps time")
	}
	t.Skipf("this machine does not keep time: whether waits are at most 10 %% too long cannot be decided (%d tries)",
		attempts)
}

// means are averages over parallel checks: the mean wait's relative error, the disks' utilization,
// and the lateness (s) of alarms and load generators.
type means struct{ apart, busy, alarm, generator float64 }

// sideBySide checks the given number of disks in parallel, with `requests` requests in total.
func sideBySide(t *testing.T, disks, requests int) means {
	t.Helper()
	reports, errs := make([]queuedisk.Report, disks), make([]error, disks)
	var all sync.WaitGroup
	for i := range disks {
		c := queuedisk.CheckConfig{
			Binary: os.Args[0],
			Model: service.Model{PositioningMean: 4 * time.Millisecond, Bandwidth: 60e6,
				Size: 4 << 30},
			Load: 0.8, Requests: requests / disks, Seed: uint64(1 + i),
		}
		all.Go(func() { reports[i], errs[i] = queuedisk.Check(context.Background(), c) })
	}
	all.Wait()
	must.Succeed(t, errs...)
	var out means
	for _, r := range reports {
		text, _ := json.Marshal(r)
		t.Logf("%s", text)
		out.apart += r.RelativeError / float64(disks)
		out.busy += r.DiskUtilization / float64(disks)
		out.alarm += r.OvershootMeanS / float64(disks)
		out.generator += r.LateMeanS / float64(disks)
	}
	return out
}
