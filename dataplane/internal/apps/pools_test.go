package apps

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/twochoice"
)

// memory is a Ceph in memory: pools by name, and the number of open connections.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	open    int
	refuse  string // writes of objects with this in their name fail
}

type memoryPool struct {
	*memory
	name string
}

func (m *memory) connect(ceph Ceph, name string, _ time.Duration) (pool, error) {
	if ceph.User != "admin" || name != "bench" {
		return nil, errors.New("the pool " + name + " cannot be opened")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open++
	return memoryPool{m, name}, nil
}

func (p memoryPool) WriteFull(name string, parts ...[]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != "" && strings.Contains(name, p.refuse) {
		return errors.New("the pool is full")
	}
	all := []byte{}
	for _, part := range parts {
		all = append(all, part...)
	}
	p.objects[p.name+"|"+name] = all
	return nil
}

func (p memoryPool) Read(name string, b []byte, offset uint64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data, there := p.objects[p.name+"|"+name]
	if !there {
		return 0, errors.New("no such object")
	}
	return copy(b, data[offset:]), nil
}

func (p memoryPool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	return nil
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
	ceph := &memory{objects: map[string][]byte{}}
	r, err := runOn(t.Context(), c, pooled(), ceph.connect, os.Args[0])
	if err != nil || len(r.Errors) != 0 {
		t.Fatalf("%v %v", err, r.Errors)
	}
	front, behind := r.Apps[0], r.Apps[1]
	if front.Scheduler != crush || front.Writes != 12 || front.Bytes != 48000 || front.Redirected != 0 ||
		len(front.ServerBytes) != 0 || len(front.HomeBytes) != 0 || front.Latency.N != 12 {
		t.Errorf("%+v", front)
	}
	if len(ceph.objects) != 12 || len(ceph.objects["bench|front/0"]) != 4000 {
		t.Errorf("%d objects", len(ceph.objects))
	}
	if _, there := r.Schedulers[crush]; there || sum(behind.ServerBytes) != behind.Bytes {
		t.Errorf("%+v %+v", r.Schedulers, behind)
	}
	if v := r.Verified; v.Objects != 12 || len(v.Bad) != 0 || v.Redirected != 0 || v.Home.N != 12 {
		t.Errorf("%+v", r.Verified)
	}
	if ceph.open != 0 {
		t.Errorf("%d connections are open", ceph.open)
	}
}

func TestAPoolsFailuresAreReported(t *testing.T) {
	c := agents(t, 1)
	t.Setenv(childVariable, "1")
	ceph := &memory{objects: map[string][]byte{}, refuse: "front/5"}
	r, err := runOn(t.Context(), c, pooled(), ceph.connect, os.Args[0])
	if err != nil || r.Apps[0].Failed != 1 || len(r.Errors) != 1 || r.Errors[0] != "the pool is full" {
		t.Errorf("%v %+v %v", err, r.Apps[0], r.Errors)
	}
	p := pooled()
	p.Apps[0].Pool = "other"
	if _, err := runOn(t.Context(), c, p, ceph.connect, os.Args[0]); err == nil || err.Error() != "the pool other cannot be opened" {
		t.Error(err)
	}
}
