package nfsproxy

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hotbed/dataplane/internal/exercise"
	"hotbed/dataplane/internal/nfsclient"
	"hotbed/dataplane/internal/sunrpc"
	"hotbed/dataplane/tests/memnfs"
	"hotbed/dataplane/tests/must"
)

// load keeps reads in flight until stop is closed.
func load(t *testing.T, c *nfsclient.Client, handle []byte, stop chan struct{}, all *sync.WaitGroup) {
	for range 8 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if data, err := c.Read(handle, 0, 65536); err != nil || len(data) != 65536 {
					t.Errorf("load: %d bytes, %v", len(data), err)
					return
				}
			}
		})
	}
}

var everyPolicy = []string{
	`{"policy": "none", "depth": 4}`,
	`{"policy": "pm", "depth": 4, "workloads": [{"priority": 2, "pairs": [[5, 0.5], [2, 1]]}, {"priority": 1}]}`,
	`{"policy": "pm", "mode": "best-effort", "depth": 2, "workloads": [{"pairs": [[0.01, 0.001]]}, {}]}`,
	`{"policy": "ps", "depth": 3, "workloads": [{"weight": 2}, {}]}`,
	`{"policy": "cake", "depth": 3, "cake": {"interval": "20ms"}, "workloads": [{"slo": "1ms"}, {}]}`,
	`{"policy": "edf", "depth": 1, "workloads": [{"slo": "1ms"}, {"slo": "1s"}]}`,
	`{"policy": "byslo", "depth": 0, "workloads": [{"slo": "1ms"}, {}]}`,
	`{"policy": "mclock", "depth": 2, "workloads": [{"reservation": 0.5, "limit": 5}, {"weight": 3}]}`,
}

func TestFilesAreTheSameWhenRepliesComeInPiecesAndOutOfOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var mutex sync.Mutex
	server := &memnfs.Server{Fragment: 1021, Hold: func(sunrpc.Call) <-chan struct{} {
		mutex.Lock()
		defer mutex.Unlock()
		return memnfs.After(time.Duration(random.IntN(2000)) * time.Microsecond)
	}}
	r := newRig(t, server, `{"policy": "ps", "depth": 16}`)
	var all sync.WaitGroup
	c, root := r.client(2)
	for i := range 8 { // on one connection
		all.Go(func() {
			if err := exercise.Files(c, root, fmt.Sprint("f", i), rand.New(rand.NewPCG(uint64(i), 3)), 40); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// Parameters change under load: first each policy stays for two comparisons, then all change quickly.
func TestFilesAreTheSameUnderEveryPolicyAndWhileItChanges(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, everyPolicy[0])
	handle := r.file("load", 65536)
	stop := make(chan struct{})
	var compared atomic.Int64
	var all sync.WaitGroup
	for _, host := range []int{2, 3, 9} {
		c, root := r.client(host)
		load(t, c, handle, stop, &all)
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(host), 5))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := exercise.Files(c, root, fmt.Sprint(host, "-", i, "-"), random, 15); err != nil {
					t.Errorf("from %d: %v", host, err)
					return
				}
				compared.Add(1)
			}
		})
	}
	for pass := range 4 {
		for _, policy := range everyPolicy {
			r.put(parameters(policy))
			before := compared.Load()
			must.Come(t, "files are compared under "+policy, func() bool {
				return pass > 0 || t.Failed() || compared.Load() >= before+2
			})
		}
		swapped := parameters(everyPolicy[1])
		swapped.Workloads[0].Clients, swapped.Workloads[1].Clients = swapped.Workloads[1].Clients,
			swapped.Workloads[0].Clients
		r.put(swapped)
		one := parameters(`{"policy": "ps", "depth": 5, "unknown": "refuse", "workloads": [{}]}`)
		r.put(one)
	}
	close(stop)
	all.Wait()
	r.eventually("nothing is left", func(s Status) bool { return s.Queued == 0 && s.Outstanding == 0 })
	if s := r.status(); s.Lost != 0 {
		t.Errorf("%d connections were lost", s.Lost)
	}
}

func TestTokenBucketsHoldCallsUntilTheirTime(t *testing.T) {
	r := newRig(t, &memnfs.Server{},
		`{"policy": "pm", "depth": 8, "workloads": [{"pairs": [[0.05, 0.002]]}, {}]}`)
	handle := r.file("f", 65536)
	held, free := r.raw(2), r.raw(3)
	start := time.Now()
	for i := range 10 { // each takes 1.00001 ms of the device
		_, _ = held.Write(readCall(uint32(i), handle, 0, 1))
	}
	_, _ = free.Write(readCall(1, handle, 0, 1))
	replies(t, free, 1)
	replies(t, held, 10)
	// The last read passes once 8 ms have leaked at 0.05 a second.
	if took := time.Since(start); took < 160*time.Millisecond {
		t.Errorf("10 ms of work passed a bucket of 2 ms and 50 ms/s within %v", took)
	}
	if s := r.status().Workloads; s[0].Held < 8 || s[1].Held != 0 {
		t.Errorf("%d and %d calls were held", s[0].Held, s[1].Held)
	}
}
