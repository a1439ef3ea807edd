package apps

import (
	"fmt"
	"time"

	"hotbed/dataplane/internal/librados"
	"hotbed/dataplane/twochoice"
)

// crush is what stands for the scheduler of an application whose writes go to a pool as they are.
const crush twochoice.Policy = "crush"

// pool is a pool in which CRUSH places objects; see librados.Pool.
type pool interface {
	WriteFull(name string, parts ...[]byte) error
	Read(name string, b []byte, offset uint64) (int, error)
	Close() error
}

// openPool connects to a Ceph for one pool's sake; an operation that takes longer than `patience` fails.
type openPool func(ceph Ceph, name string, patience time.Duration) (pool, error)

func openRados(ceph Ceph, name string, patience time.Duration) (pool, error) {
	p, err := librados.Open(librados.Config{Conf: ceph.Conf, Keyring: ceph.Keyring, User: ceph.User, Pool: name,
		Patience: connecting, OSDPatience: max(patience, time.Second)})
	if err != nil {
		return nil, err // not a pool that is nil
	}
	return p, nil
}

// place is a compute node's pool: each node has a connection of its own.
type place struct {
	node int
	pool string
}

// pools are connections that are made before anything is written.
type pools struct {
	open     openPool
	patience time.Duration
	there    map[place]pool
}

// connect opens a pool, if it is not open.
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
		_ = one.Close() // all of it was acknowledged, or is told as failed
	}
}

// readWhole reads an object that has so many bytes, and no others.
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
