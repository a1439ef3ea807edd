package sim

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// everything runs a model with every part: both kinds of clients use four disks, each behind links,
// with a processor and a background load, while disks and links fail. It hashes the end of every
// request.
func everything(seed uint64) (hash string, events uint64) {
	k := New()
	sum := fnv.New64a()
	type server struct {
		in, out *Link
		cpu     *Station
		disk    *Disk
	}
	servers := make([]server, 4)
	for i := range servers {
		s := &servers[i]
		s.in = NewLink(LinkSpec{Rate: 125e6, Delay: 50 * time.Microsecond})
		s.out = NewLink(LinkSpec{Rate: 125e6, Delay: 50 * time.Microsecond})
		s.cpu = NewStation(2)
		s.disk = NewDisk(k, platter())
		load := fio()
		load.Rate = 10
		NewBackground(load, s.disk, nil, NewStream(seed, fmt.Sprintf("fio-%d", i))).Start(k)
	}
	draws := NewStream(seed, "requests")
	target := TargetFunc(func(k *Kernel, id uint64, done Handler) {
		s := &servers[draws.IntN(4)]
		op := IO{Write: draws.Bernoulli(0.3), Offset: draws.IntN(5<<30/4096) * 4096,
			Bytes: 4096 * (1 + draws.IntN(512))}
		cpu := Seconds(1e-4 * exp(draws.Normal()))
		s.in.Send(k, 200, Func(func(k *Kernel, id uint64) {
			s.cpu.Submit(k, cpu, Func(func(k *Kernel, id uint64) {
				s.disk.Submit(k, op, Func(func(k *Kernel, id uint64) {
					s.out.Send(k, op.Bytes, Func(func(k *Kernel, id uint64) {
						fmt.Fprintln(sum, k.Now().Nanoseconds(), id)
						done.Handle(k, id)
					}), id)
				}), id)
			}), id)
		}), id)
	})
	hyper, err := NewHyperExponential(50*ms, 5)
	if err != nil {
		panic(err)
	}
	NewClosedLoop(12, Exponential(10*ms), NewStream(seed, "think"), target).Start(k)
	open := NewOpenLoop(hyper, NewStream(seed, "arrivals"), target)
	open.Start(k)
	do := func(at time.Duration, what func(*Kernel)) {
		k.At(at, Func(func(k *Kernel, _ uint64) { what(k) }), 0)
	}
	do(2*time.Second, func(*Kernel) { servers[0].disk.Slow(2.7) })
	do(3*time.Second, func(*Kernel) { servers[0].disk.Slow(1) })
	do(3*time.Second, servers[1].out.Cut)
	do(4*time.Second, servers[1].out.Heal)
	do(4*time.Second, func(*Kernel) { servers[2].out.Delay(3 * ms) })
	do(5*time.Second, func(*Kernel) { servers[2].out.Delay(0) })
	do(9*time.Second, servers[3].disk.Crash)
	k.RunUntil(10 * time.Second)
	fmt.Fprintln(sum, open.Latency.Buckets(), servers[0].disk.Stats(k), servers[1].out.Stats(k))
	return fmt.Sprintf("%016x", sum.Sum64()), k.Events()
}

func TestTheSameSeedGivesTheSameBits(t *testing.T) {
	first, events := everything(1)
	second, _ := everything(1)
	other, _ := everything(2)
	if first != second || first == other {
		t.Errorf("seed 1 gave %s and %s, seed 2 %s", first, second, other)
	}
	if want := "5418fd9490e7c878"; first != want {
		t.Errorf("%d events hash to %s, they hashed to %s", events, first, want)
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
	build := exec.Command(compiler, "build", "-gcflags=-S", "./...", "../service", "../enforcer",
		"../estimator")
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
