package apps

import (
	"fmt"
	"time"

	"hotbed/dataplane/internal/librados"
	"hotbed/dataplane/twochoice"
)

// crush stands for the scheduler of an application that writes to a pool directly.
const crush twochoice.Policy = "crush"

// pool is a pool in which CRUSH places objects; see librados.Pool.
type pool interface {
	WriteFull(name string, parts ...[]byte) error
	Read(name string, b []byte, offset uint64) (int, error)
	Close() error
}

// openPool connects to a pool of a Ceph cluster; an operation fails if it exceeds `patience`.
type openPool func(ceph Ceph, name string, patience time.Duration) (pool, error)

func openRados(ceph Ceph, name string, patience time.Duration) (pool, error) {
	p, err := librados.Open(librados.Config{Conf: ceph.Conf, Keyring: ceph.Keyring, User: ceph.User, Pool: name,
		Patience: connecting, OSDPatience: max(patience, time.Second)})
	if err != nil {
		return nil, err // a plain nil, not an interface that holds a nil pointer
	}
	return p, nil
}

// place is a compute node's pool: each node has its own connection.
type place struct {
	node int
	pool string
}

// pools are the connections, made before the first write.
type pools struct {
	open     openPool
	patience time.Duration
	there    map[place]pool
}

// connect opens a pool unless it is open.
func (p *pools) connect(ceph *Ceph, at place) error {
	if p.there[at] != nil {
		return nil
	}
	found, err := p.open(*ceph, at.pool, p.patience)
	if err != nil {
		return err
	}
	p.there[at] = found
	return nil
}

func (p *pools) close() {
	for _, one := range p.there {
		_ = one.Close() // all writes were acknowledged or are reported as failed
	}
}

// readWhole reads an object and returns an error unless its length is exactly size bytes.
func readWhole(p pool, name string, size int) ([]byte, error) {
	data := make([]byte, size+1)
	n, err := p.Read(name, data, 0)
	if err == nil && n != size {
		err = fmt.Errorf("it has %d bytes", n)
		if n > size {
			err = fmt.Errorf("it has more than the %d bytes that were written", size)
		}
	}
	return data[:size], err
}
