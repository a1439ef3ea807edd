package apps

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"hotbed/dataplane/tests/mempool"
	"hotbed/dataplane/twochoice"
)

// memory is a Ceph in memory with one pool, and its connections.
type memory struct {
	mempool.Pool
	opened, closed atomic.Int64
}

type memoryPool struct{ *memory }

func (p memoryPool) Close() error {
	p.closed.Add(1)
	return nil
}

func (m *memory) connect(ceph Ceph, name string, _ time.Duration) (pool, error) {
	if ceph.User != "admin" || name != "bench" {
		return nil, errors.New("the pool " + name + " cannot be opened")
	}
	m.opened.Add(1)
	return memoryPool{m}, nil
}

// pooled returns a plan with one application in a pool and others in the background.
func pooled() Plan {
	return Plan{Nodes: 2, Processes: 2, Seed: 3, Verify: true, Patience: twochoice.Span(time.Minute),
		Ceph: &Ceph{Conf: "conf", Keyring: "keyring", User: "admin"},
		Apps: []Application{
			{Name: "front", Pool: "bench", Writes: 3, Size: 4000},
			{Name: "behind", Scheduler: twochoice.Fixed, Writes: 1, Size: 2000, Background: true},
		}}
}

func TestWritesOfAPoolAreItsObjectsAndAreReadBack(t *testing.T) {
	c := agents(t, 4)
	t.Setenv(childVariable, "1")
	ceph := &memory{Pool: mempool.Pool{Objects: map[string][]byte{}}}
	r, err := runOn(t.Context(), c, pooled(), ceph.connect, os.Args[0])
	if err != nil || len(r.Errors) != 0 {
		t.Fatalf("%v %v", err, r.Errors)
	}
	front, behind := r.Apps[0], r.Apps[1]
	if front.Scheduler != crush || front.Writes != 12 || front.Bytes != 48000 || front.Redirected != 0 ||
		len(front.ServerBytes) != 0 || len(front.HomeBytes) != 0 || front.Latency.N != 12 {
		t.Errorf("%+v", front)
	}
	if len(ceph.Objects) != 12 || len(ceph.Objects["front/0"]) != 4000 {
		t.Errorf("%d objects", len(ceph.Objects))
	}
	if _, there := r.Schedulers[crush]; there || sum(behind.ServerBytes) != behind.Bytes {
		t.Errorf("%+v %+v", r.Schedulers, behind)
	}
	if v := r.Verified; v.Objects != 12 || len(v.Bad) != 0 || v.Redirected != 0 || v.Home.N != 12 {
		t.Errorf("%+v", r.Verified)
	}
	if opened := ceph.opened.Load(); opened == 0 || ceph.closed.Load() != opened {
		t.Errorf("of %d connections %d are closed", opened, ceph.closed.Load())
	}
}

func TestAPoolsFailuresAreReported(t *testing.T) {
	c := agents(t, 1)
	t.Setenv(childVariable, "1")
	ceph := &memory{Pool: mempool.Pool{Objects: map[string][]byte{}, Refuse: "front/5"}}
	r, err := runOn(t.Context(), c, pooled(), ceph.connect, os.Args[0])
	if err != nil || r.Apps[0].Failed != 1 || len(r.Errors) != 1 || r.Errors[0] != syscall.ENOSPC.Error() {
		t.Errorf("%v %+v %v", err, r.Apps[0], r.Errors)
	}
	p := pooled()
	p.Apps[0].Pool = "other"
	if _, err := runOn(t.Context(), c, p, ceph.connect, os.Args[0]); err == nil || err.Error() != "the pool other cannot be opened" {
		t.Error(err)
	}
}
