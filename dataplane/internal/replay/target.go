package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"hotbed/dataplane/internal/exercise"
	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/nfsclient"
)

// Target is a file on a server.
type Target struct {
	Server netip.AddrPort // NFS
	Mount  netip.AddrPort // the mount protocol
	Export string
	File   string // in the export's root
}

func (t Target) String() string { return t.Export + "/" + t.File }

// open connects and mounts.
func (t Target) open() (c *nfsclient.Client, root []byte, err error) {
	m, err := nfsclient.Dial(t.Mount.String(), netip.Addr{})
	if err != nil {
		return nil, nil, fmt.Errorf("the mount protocol: %w", err)
	}
	defer m.Close()
	if root, err = m.Mount(t.Export); err != nil {
		return nil, nil, err
	}
	c, err = nfsclient.Dial(t.Server.String(), netip.Addr{})
	return c, root, err
}

// Find returns the file's handle and size.
func (t Target) Find() (handle []byte, size int64, err error) {
	c, root, err := t.open()
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	return c.Lookup(root, t.File)
}

const (
	prepareBlock   = 256 << 10
	prepareWriters = 8
)

// Prepare extends the file to at least the size, with bytes that do not repeat, so that every read
// reaches the device. A file that is long enough stays unchanged.
func (t Target) Prepare(ctx context.Context, size int64, seed uint64, progress func(done int64)) error {
	c, root, err := t.open()
	if err != nil {
		return err
	}
	defer c.Close()
	var have int64
	handle, have, err := c.Lookup(root, t.File)
	var status nfsclient.StatusError
	if errors.As(err, &status) && status.Status == nfs3.ErrNoEntry {
		handle, err = c.Create(root, t.File)
	}
	if err != nil || have >= size {
		return err
	}
	var next, done atomic.Int64
	next.Store(have)
	var writers sync.WaitGroup
	failed := make(chan error, prepareWriters)
	for range prepareWriters {
		writers.Go(func() {
			block := make([]byte, prepareBlock)
			for len(failed) == 0 {
				at := next.Add(prepareBlock) - prepareBlock
				if at >= size {
					return
				}
				if ctx.Err() != nil {
					failed <- errors.New("interrupted")
					return
				}
				part := block[:min(prepareBlock, size-at)]
				fill(part, seed, uint64(at))
				if err := c.Write(handle, at, part); err != nil {
					failed <- err
					return
				}
				done.Add(int64(len(part)))
			}
		})
	}
	stop := make(chan struct{})
	var shown sync.WaitGroup
	shown.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
				progress(have + done.Load())
			}
		}
	})
	writers.Wait()
	close(stop)
	shown.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// fill writes pseudo-random bytes determined by a seed and a place.
func fill(block []byte, seed, place uint64) {
	random := rand.NewPCG(seed, place)
	for len(block) >= 8 {
		v := random.Uint64()
		for i := range 8 {
			block[i] = byte(v >> (8 * i))
		}
		block = block[8:]
	}
	for i := range block {
		block[i] = byte(random.Uint64())
	}
}

// Check uses files with the target's name as a prefix, as `connections` parallel clients of `steps`
// steps each. It compares every byte that it reads; the error gives the first difference. When ctx
// ends, it stops after the current round of 20 steps.
func (t Target) Check(ctx context.Context, connections, steps int, seed uint64) error {
	failed := make(chan error, connections)
	var clients sync.WaitGroup
	for i := range connections {
		clients.Go(func() { failed <- t.check(ctx, i, steps, seed) })
	}
	clients.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (t Target) check(ctx context.Context, client, steps int, seed uint64) error {
	c, root, err := t.open()
	if err != nil {
		return err
	}
	defer c.Close()
	random := rand.New(rand.NewPCG(seed, uint64(client)))
	for round := 0; steps > 0 && ctx.Err() == nil; round++ {
		count := min(steps, 20)
		name := fmt.Sprintf("%s-%d-%d-", t.File, client, round)
		if err := exercise.Files(c, root, name, random, count); err != nil {
			return fmt.Errorf("client %d, round %d: %w", client, round, err)
		}
		steps -= count
	}
	return nil
}
