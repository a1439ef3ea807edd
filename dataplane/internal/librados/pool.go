package librados

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config names a pool of a cluster and its user.
type Config struct {
	// Conf is Ceph's configuration, such as /etc/ceph/ceph.conf; Keyring is the user's key file.
	Conf, Keyring string
	// User is the cephx user, without the "client." prefix.
	User, Pool string
	// Patience bounds the wait for monitors when connecting.
	Patience time.Duration
	// OSDPatience bounds an operation; if it expires, the outcome is unknown. 0 means no limit.
	OSDPatience time.Duration
}

// Pool is a pool of a cluster; radosstore.Pool documents its methods. Unless Config sets OSDPatience,
// operations wait for as long as their OSD is away: no time-out leaves their outcome unknown.
type Pool struct {
	library          *library
	cluster, context uintptr
	name             string

	// mu is read-locked by operations, so that closing waits for them.
	mu     sync.RWMutex
	closed bool
	cookie string
}

// Open connects to a cluster and opens a pool. The error is one sentence.
func Open(c Config) (*Pool, error) {
	l, err := load()
	if err != nil {
		return nil, err
	}
	p := &Pool{library: l, name: c.Pool}
	if err := check(l.create(&p.cluster, c.User), "a connection cannot be made for client.%s", c.User); err != nil {
		return nil, err
	}
	if err := p.connect(c); err != nil {
		l.shutdown(p.cluster)
		return nil, err
	}
	// A full pool must return an error instead of an endless wait.
	l.fullTry(p.context)
	return p, nil
}

func (p *Pool) connect(c Config) error {
	l := p.library
	if err := check(l.readConf(p.cluster, c.Conf), "Ceph's configuration %s cannot be read", c.Conf); err != nil {
		return err
	}
	seconds := strconv.Itoa(max(1, int(c.Patience.Seconds())))
	for _, option := range [][2]string{{"keyring", c.Keyring}, {"client_mount_timeout", seconds},
		{"rados_mon_op_timeout", seconds}, {"rados_osd_op_timeout", strconv.Itoa(int(c.OSDPatience.Seconds()))}} {
		if option[1] == "" {
			continue
		}
		if err := check(l.setConf(p.cluster, option[0], option[1]), "Ceph's option %s cannot be set", option[0]); err != nil {
			return err
		}
	}
	if err := check(l.connect(p.cluster), "the Ceph cluster of %s does not let client.%s in", c.Conf, c.User); err != nil {
		return err
	}
	return check(l.createContext(p.cluster, c.Pool, &p.context), "the pool %s cannot be opened", c.Pool)
}

// Close releases the pool and disconnects.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var err error
	if p.cookie != "" {
		err = check(p.library.unlock(p.context, ownerObject, lockName, p.cookie), "the pool %s cannot be given back", p.name)
	}
	p.library.destroyContext(p.context)
	p.library.shutdown(p.cluster)
	return err
}

var errClosed = errors.New("the pool is closed")

// do executes an operation unless the pool is closed.
func (p *Pool) do(what, name string, operation func() int32) (int, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return 0, errClosed
	}
	code := operation()
	if code < 0 {
		return 0, &Error{what + " " + p.Path(name), syscall.Errno(-code)}
	}
	return int(code), nil
}

// WriteFull replaces an object by these parts in one operation.
func (p *Pool) WriteFull(name string, parts ...[]byte) error {
	_, err := p.do("write", name, func() int32 {
		l := p.library
		operation := l.createWrite()
		defer l.releaseWrite(operation)
		for i, part := range parts {
			if i == 0 {
				l.writeFull(operation, pointer(part), uintptr(len(part)))
			} else if len(part) > 0 {
				l.appendTo(operation, pointer(part), uintptr(len(part)))
			}
		}
		code := l.operate(operation, p.context, name, nil, 0)
		runtime.KeepAlive(parts)
		return code
	})
	return err
}

// Write writes at an offset.
func (p *Pool) Write(name string, b []byte, offset uint64) error {
	_, err := p.do("write", name, func() int32 {
		code := p.library.write(p.context, name, pointer(b), uintptr(len(b)), offset)
		runtime.KeepAlive(b)
		return code
	})
	return err
}

// Read reads from an offset.
func (p *Pool) Read(name string, b []byte, offset uint64) (int, error) {
	return p.do("read", name, func() int32 {
		code := p.library.read(p.context, name, pointer(b), uintptr(len(b)), offset)
		runtime.KeepAlive(b)
		return code
	})
}

// Truncate truncates an object.
func (p *Pool) Truncate(name string, size uint64) error {
	_, err := p.do("truncate", name, func() int32 { return p.library.truncate(p.context, name, size) })
	return err
}

// Size returns an object's length.
func (p *Pool) Size(name string) (uint64, error) {
	var size uint64
	var seconds int64
	_, err := p.do("stat", name, func() int32 { return p.library.stat(p.context, name, &size, &seconds) })
	return size, err
}

// Remove removes an object.
func (p *Pool) Remove(name string) error {
	_, err := p.do("remove", name, func() int32 { return p.library.remove(p.context, name) })
	return err
}

// List returns the names of all objects.
func (p *Pool) List() ([]string, error) {
	var out []string
	_, err := p.do("list", "", func() int32 {
		l := p.library
		var list uintptr
		if code := l.openList(p.context, &list); code < 0 {
			return code
		}
		defer l.closeList(list)
		for {
			var name, locator, namespace uintptr
			switch code := l.nextName(list, &name, &locator, &namespace); {
			case code == -int32(syscall.ENOENT):
				return 0
			case code < 0:
				return code
			}
			out = append(out, text(name))
		}
	})
	return out, err
}

// Path returns an object's name for messages.
func (p *Pool) Path(name string) string { return p.name + "/" + name }

// An owner holds an exclusive lock on this object. A dead process leaves the lock, and its
// operations may still be in flight to the OSD. They could change the pool under the successor: an
// old return to a base, over newer bytes. So the successor first makes Ceph refuse the old process's
// address (a blocklist). It then reads the pool only with the map that holds the blocklist entry.
const (
	ownerObject = "owner"
	lockName    = "hotbed"
	// fencedFor is how long an old address is refused, in seconds; no operation stays in flight
	// longer.
	fencedFor = 600
	tries     = 5
)

// Own takes the pool for an agent on this machine. It refuses a pool owned by an agent on another
// machine, unless takeOver is true. An owner that died on this machine or is fenced off loses the
// pool.
func (p *Pool) Own(machine string, takeOver bool) error {
	machine = strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, machine)
	cookie := machine + "/" + rand.Text()
	for range tries {
		_, err := p.do("lock", ownerObject, func() int32 {
			return p.library.lock(p.context, ownerObject, lockName, cookie, "", nil, 0)
		})
		if err == nil {
			p.cookie = cookie
			return nil
		}
		if e, ok := err.(*Error); !ok || e.Errno != syscall.EBUSY {
			return err
		}
		owners, err := p.owners()
		if err != nil {
			return err
		}
		for _, o := range owners {
			if o.machine() != machine && !takeOver {
				return fmt.Errorf("the pool %s is in use by an agent on %s at %s; stop that one, or start this one once "+
					"with --take-over", p.name, o.machine(), o.address)
			}
			if err := p.fence(o); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("the pool %s is taken by other agents again and again; let only one run", p.name)
}

type owner struct{ client, cookie, address string }

func (o owner) machine() string {
	machine, _, _ := strings.Cut(o.cookie, "/")
	return machine
}

// owners returns the holders of the lock: one or none.
func (p *Pool) owners() ([]owner, error) {
	const size = 4096
	var exclusive int32
	var b [4][]byte // tag, clients, cookies, addresses
	var n [4]uintptr
	for i := range b {
		b[i], n[i] = make([]byte, size), size
	}
	count := 0
	_, err := p.do("list the lockers of", ownerObject, func() int32 {
		got := p.library.lockers(p.context, ownerObject, lockName, &exclusive, &b[0][0], &n[0], &b[1][0], &n[1], &b[2][0],
			&n[2], &b[3][0], &n[3])
		count = int(got)
		return int32(min(got, 0))
	})
	if err != nil {
		return nil, err
	}
	clients, cookies, addresses := words(b[1], count), words(b[2], count), words(b[3], count)
	if len(clients) != count || len(cookies) != count || len(addresses) != count {
		return nil, fmt.Errorf("librados reports %d owners of the pool %s without their names", count, p.name)
	}
	out := make([]owner, count)
	for i := range out {
		out[i] = owner{clients[i], cookies[i], addresses[i]}
	}
	return out, nil
}

// words returns the first n of consecutive C strings.
func words(b []byte, n int) []string {
	var out []string
	for len(out) < n {
		word, rest, ended := bytes.Cut(b, []byte{0})
		if !ended {
			break
		}
		out = append(out, string(word))
		b = rest
	}
	return out
}

// fence blocks all further operations of an owner and breaks its lock.
func (p *Pool) fence(o owner) error {
	what := fmt.Sprintf("the former agent at %s cannot be fenced off the pool %s", o.address, p.name)
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return errClosed
	}
	if err := check(p.library.blocklist(p.cluster, o.address, fencedFor), "%s", what); err != nil {
		return err
	}
	if err := check(p.library.waitForMap(p.cluster), "%s", what); err != nil {
		return err
	}
	code := p.library.breakLock(p.context, ownerObject, lockName, o.client, o.cookie)
	if code == -int32(syscall.ENOENT) {
		return nil // another process broke the lock
	}
	return check(code, "%s", what)
}
