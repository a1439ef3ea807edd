package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"hotbed/dataplane/internal/exercise"
)

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
