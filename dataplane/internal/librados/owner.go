package librados

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"syscall"
)

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
		return nil, fmt.Errorf("librados told %d owners of the pool %s and not their names", count, p.name)
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
