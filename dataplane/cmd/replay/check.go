package main

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"time"

	"hotbed/dataplane/internal/command"
)

// check uses files through the server and compares every byte.
func check(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("replay check", flag.ContinueOnError)
	var t targetFlags
	t.register(flags)
	connections := flags.Int("connections", 2, "`N` clients at once")
	steps := flags.Int("steps", 200, "`N` operations of each")
	seed := flags.Uint64("seed", 1, "of what is done")
	if err := command.Parse(flags, args, "[flags]"); err != nil {
		return err
	}
	target, err := t.target()
	if err != nil {
		return err
	}
	if *connections < 1 || *connections > 64 || *steps < 1 {
		return command.Usagef("--connections is %d and --steps %d; write 1 to 64 and at least 1", *connections, *steps)
	}
	start := time.Now()
	if err := target.Check(ctx, *connections, *steps, *seed); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"schema": 1, "same": true,
		"operations": *connections * *steps, "seconds": time.Since(start).Seconds()})
}
