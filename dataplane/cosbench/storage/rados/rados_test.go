package rados

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/auth"
	"hotbed/dataplane/cosbench/storage/storagetest"
)

// fake is a cluster in memory.
type fake struct {
	pools map[string]*fakePool
	open  int
	fail  syscall.Errno
}

func (f *fake) CreatePool(name string) error {
	if f.pools[name] != nil {
		return syscall.EEXIST
	}
	f.pools[name] = &fakePool{cluster: f, objects: map[string][]byte{}}
	return nil
}

func (f *fake) DeletePool(name string) error {
	if f.pools[name] == nil {
		return syscall.ENOENT
	}
	delete(f.pools, name)
	return nil
}

func (f *fake) Open(name string) (pool, error) {
	if f.pools[name] == nil {
		return nil, syscall.ENOENT
	}
	f.open++
	return f.pools[name], nil
}

func (f *fake) Close() {}

type fakePool struct {
	cluster *fake
	objects map[string][]byte
}

func (p *fakePool) WriteFull(name string, parts ...[]byte) error {
	if p.cluster.fail != 0 {
		return p.cluster.fail
	}
	p.objects[name] = slices.Concat(parts...)
	return nil
}

func (p *fakePool) Read(name string, b []byte, offset uint64) (int, error) {
	if p.objects[name] == nil {
		return 0, fs.ErrNotExist
	}
	return copy(b, p.objects[name][min(offset, uint64(len(p.objects[name]))):]), nil
}

func (p *fakePool) Size(name string) (uint64, error) {
	content, found := p.objects[name]
	if !found {
		return 0, syscall.ENOENT
	}
	return uint64(len(content)), nil
}

func (p *fakePool) Remove(name string) error {
	if _, found := p.objects[name]; !found {
		return syscall.ENOENT
	}
	delete(p.objects, name)
	return nil
}

func (p *fakePool) List() ([]string, error) { return slices.Collect(maps.Keys(p.objects)), nil }

func (p *fakePool) Close() error { p.cluster.open--; return nil }

func TestTheContract(t *testing.T) {
	cluster := &fake{pools: map[string]*fakePool{}}
	left := false
	s := &store{cluster: cluster, pools: map[string]pool{}, leave: func() { left = true }}
	storagetest.Contract(t, s, "pool", storagetest.Traits{FullContainers: true})
	if err := errors.Join(s.CreateContainer(t.Context(), "p"), s.Delete(t.Context(), "p", "o"), s.Close(), s.Close()); err != nil ||
		!left || cluster.open != 0 {
		t.Errorf("%v, %d pools are open", err, cluster.open)
	}
}

func TestErrnosHaveKinds(t *testing.T) {
	cluster := &fake{pools: map[string]*fakePool{}}
	s := &store{cluster: cluster, pools: map[string]pool{}}
	if err := s.CreateContainer(t.Context(), "p"); err != nil {
		t.Fatal(err)
	}
	for errno, want := range map[syscall.Errno]string{syscall.EPERM: access.Auth, syscall.ETIMEDOUT: access.Timeout,
		syscall.EIO: access.Server, syscall.ENOSPC: access.Server, syscall.ENOTCONN: access.Refused, syscall.EFBIG: access.Client} {
		cluster.fail = errno
		err := s.Put(t.Context(), "p", "o", strings.NewReader(""), 0)
		var e *access.Error
		if !errors.As(err, &e) || e.Kind != want || e.Status != int(errno) {
			t.Errorf("%v, not of kind %s", err, want)
		}
	}
}

func TestAShrunkObjectIsAnError(t *testing.T) {
	cluster := &fake{pools: map[string]*fakePool{}}
	s := &store{cluster: cluster, pools: map[string]pool{}}
	if err := errors.Join(s.CreateContainer(t.Context(), "p"), s.Put(t.Context(), "p", "o", strings.NewReader("abc"), 3)); err != nil {
		t.Fatal(err)
	}
	body, _, err := s.Get(t.Context(), "p", "o")
	if err != nil {
		t.Fatal(err)
	}
	cluster.pools["p"].objects["o"] = []byte{}
	if _, err := body.Read(make([]byte, 10)); access.KindOf(err) != access.Server {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	body, _, err = s.Get(ended, "p", "o")
	if err != nil {
		t.Fatal(err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := s.Delete(ended, "p", "o"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBadConfigs(t *testing.T) {
	for config, text := range map[string]string{"": "accesskey is missing", "timeout=x": "timeout=x", "logging=7": "logging=7"} {
		parsed, err := access.ParseConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(parsed, auth.Session{}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// TestACephKeepsTheContract needs a cluster where pools can be made and removed.
func TestACephKeepsTheContract(t *testing.T) {
	words := strings.Fields(os.Getenv("HOTBED_RADOS"))
	if len(words) != 3 {
		t.Skip("needs a Ceph: HOTBED_RADOS is its configuration, a user and the user's keyring")
	}
	parsed, err := access.ParseConfig("conf=" + words[0] + ";accesskey=" + words[1] + ";keyring=" + words[2])
	if err != nil {
		t.Fatal(err)
	}
	first, err := Open(parsed, auth.Session{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := Open(parsed, auth.Session{})
	if err != nil || len(shared.byConfig) != 1 {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	storagetest.Contract(t, second, "cosbench-contract", storagetest.Traits{FullContainers: true})
	if err := second.Close(); err != nil || len(shared.byConfig) != 0 {
		t.Error(err)
	}
}
