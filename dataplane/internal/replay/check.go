package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"hotbed/dataplane/internal/exercise"
)

// Check uses files whose names begin with the target's as `connections` clients at once, each of them
// so many times, and compares every byte that it reads; the error says what differs first. It stops
// between rounds of 20 steps when ctx ends.
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
