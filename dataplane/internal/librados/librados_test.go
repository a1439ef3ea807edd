package librados

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/storetest"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/radosstore"
)

var _ radosstore.Pool = (*Pool)(nil)

func TestErrorsAreWhatTheyMean(t *testing.T) {
	must.Succeed(t, check(3, "x"))
	err := check(-int32(syscall.ENOENT), "read %s", "a/b")
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "read a/b: no such file or directory" {
		t.Error(err)
	}
	if err := check(-int32(syscall.ESHUTDOWN), "write a/b"); !strings.Contains(err.Error(), "taken its pool over") {
		t.Error(err)
	}
}

func TestRowsOfStringsAreTakenApart(t *testing.T) {
	row := []byte("client.4\x00client.5\x00\x00rest")
	if got := words(row, 2); !slices.Equal(got, []string{"client.4", "client.5"}) {
		t.Error(got)
	}
	if got := words([]byte("cut"), 1); got != nil {
		t.Error(got)
	}
	if got := text(uintptr(unsafe.Pointer(unsafe.SliceData(row)))); got != "client.4" {
		t.Error(got)
	}
	if (owner{cookie: "node1/ABC"}).machine() != "node1" {
		t.Error("a cookie's machine")
	}
}

// TestACluserThatIsNotThereIsOneSentence, in time, and leaves nothing behind.
func TestACluserThatIsNotThereIsOneSentence(t *testing.T) {
	if _, err := load(); err != nil {
		t.Skip("no librados on this machine")
	}
	c := Config{Conf: t.TempDir() + "/none.conf", User: "x", Pool: "p", Patience: time.Second}
	_, err := Open(c)
	must.Refuse(t, err, "none.conf")
}

// config returns the Config of a cluster for tests. HOTBED_RADOS is "conf user keyring"; pools contract.0
// and lock.0 must exist, each on a single OSD. That OSD then also stores the lock, so it knows of a fence
// when it breaks the lock. Any other OSD learns of a fence with the new owner's first operation.
func config(t *testing.T, pool string) Config {
	t.Helper()
	words := strings.Fields(os.Getenv("HOTBED_RADOS"))
	if len(words) != 3 {
		t.Skip("needs a Ceph: HOTBED_RADOS is its configuration, a user and the user's keyring")
	}
	return Config{Conf: words[0], User: words[1], Keyring: words[2], Pool: pool, Patience: 20 * time.Second}
}

// onCeph is a disk on a pool.
type onCeph struct {
	*filestore.Disk
	pool *Pool
}

func (d onCeph) Close() error   { return errors.Join(d.Disk.Close(), d.pool.Close()) }
func (d onCeph) Abandon() error { return abandon(d.pool) }

// abandon disconnects as the death of the process does: the lock stays.
func abandon(p *Pool) error {
	p.cookie = ""
	return p.Close()
}

func empty(t *testing.T, c Config) {
	t.Helper()
	p, err := Open(c)
	must.Succeed(t, err)
	defer func() { _ = p.Close() }()
	names, err := p.List()
	must.Succeed(t, err)
	for _, name := range names {
		must.Succeed(t, p.Remove(name))
	}
}

// TestCephKeepsTheContract leaves the lock of a dead owner at every restart.
func TestCephKeepsTheContract(t *testing.T) {
	c := config(t, "contract.0")
	storetest.Run(t, func(t *testing.T) storetest.Open {
		empty(t, c)
		t.Cleanup(func() { empty(t, c) })
		return func() (storetest.Disk, filestore.Found, error) {
			p, err := Open(c)
			if err != nil {
				return nil, filestore.Found{}, err
			}
			if err := p.Own("tester", false); err != nil {
				return nil, filestore.Found{}, err
			}
			d, found, err := radosstore.OpenDisk(p, storetest.Node, 16)
			return onCeph{d, p}, found, err
		}
	})
}

func TestAnOwnerThatIsFencedWritesNoMore(t *testing.T) {
	c := config(t, "lock.0")
	empty(t, c)
	pool := func() *Pool {
		p, err := Open(c)
		must.Succeed(t, err)
		return p
	}
	first, second, third := pool(), pool(), pool()
	defer func() {
		_ = abandon(first)
		_ = second.Close()
		_ = third.Close()
		empty(t, c)
	}()
	must.Succeed(t, first.Own("one", false))
	must.Succeed(t, first.Write("b.x.0", []byte("first"), 0))
	must.Refuse(t, second.Own("two", false), "in use by an agent on one")
	must.Succeed(t, second.Own("two", true))
	if err := first.Write("b.x.0", []byte("late"), 0); !errors.Is(err, syscall.ESHUTDOWN) {
		t.Errorf("a fenced owner writes: %v", err)
	}
	b := make([]byte, 10)
	if n, err := second.Read("b.x.0", b, 0); err != nil || string(b[:n]) != "first" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if err := second.Close(); err != nil { // a clean end: no fence is needed
		t.Fatal(err)
	}
	must.Succeed(t, third.Own("three", false))
}
