package sim

import (
	"runtime"
	"testing"
	"time"
)

// BenchmarkMillionClients runs a closed loop of a million clients over ten thousand servers at
// about 80 % load, to measure event queue, stations and clients at the largest expected size.
func BenchmarkMillionClients(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const clients, servers = 1_000_000, 10_000
	k, draws := New(), NewStream(1, "requests")
	stations := make([]*Station, servers)
	for i := range stations {
		stations[i] = NewStation(1)
	}
	service := Exponential(10 * ms)
	target := TargetFunc(func(k *Kernel, id uint64, done Handler) {
		stations[draws.IntN(servers)].Submit(k, service.Draw(draws), done, id)
	})
	loop := NewClosedLoop(clients, Exponential(1250*ms), NewStream(1, "think"), target)
	loop.Start(k)
	k.RunUntil(3 * time.Second)
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	b.ResetTimer()
	used := cpuTime()
	for range b.N {
		k.Step()
	}
	b.ReportMetric(float64(b.N)/(cpuTime()-used).Seconds()/1e6, "Mevents/cpu-s")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/clients, "B/client")
	runtime.KeepAlive(loop)
}

// Events cost no allocation once the queue has reached its largest size.
func TestEventsAllocateNothing(t *testing.T) {
	k, draws := New(), NewStream(1, "allocations")
	st := NewStation(4)
	disk := NewDisk(k, platter())
	link := NewLink(LinkSpec{Rate: 1e9, Delay: ms})
	service := Exponential(ms)
	target := TargetFunc(func(k *Kernel, id uint64, done Handler) {
		switch id % 3 {
		case 0:
			st.Submit(k, service.Draw(draws), done, id)
		case 1:
			disk.Submit(k, IO{Offset: draws.IntN(1000) << 20, Bytes: 1 << 20}, done, id)
		case 2:
			link.Send(k, 1<<16, done, id)
		}
	})
	loop := NewClosedLoop(100, Exponential(50*ms), NewStream(1, "think"), target)
	loop.Start(k)
	k.RunUntil(200 * time.Second)
	events := k.Events()
	allocations := testing.AllocsPerRun(5, func() { k.RunUntil(k.Now() + 10*time.Second) })
	if each := float64(k.Events()-events) / 6; allocations > each/1000 {
		t.Errorf("%g allocations in %g events", allocations, each)
	}
}
