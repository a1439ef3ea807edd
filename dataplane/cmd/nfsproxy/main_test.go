package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"hotbed/dataplane/internal/command"
	"hotbed/dataplane/tests/must"
)

func TestMistakesGetASentence(t *testing.T) {
	bad := must.Write(t, "bad.json", `{"nfs": {"listen": "here"}}`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--config is missing"},
		{[]string{"--config", "/nowhere"}, "cannot be read (no such file"},
		{[]string{"--config", bad}, `nfs.listen is "here"`},
		{[]string{"--port"}, "lists the flags"},
	} {
		err := run(context.Background(), c.args)
		var usage command.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v; want a sentence with %q", c.args, err, c.want)
		}
	}
}

func TestAGoodConfigurationIsOnlyChecked(t *testing.T) {
	path := must.Write(t, "good.json", `{"nfs": {"listen": "127.0.0.1:1", "server": "127.0.0.1:2"}, "control": "/nowhere/c",
		"profile": "/nowhere/p", "parameters": {"policy": "ps", "depth": 4}}`)
	must.Succeed(t, run(context.Background(), []string{"--config", path, "--check"}))
}
