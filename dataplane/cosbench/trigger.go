package cosbench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// checkTriggers refuses a workload whose triggers have no scripts. A trigger is the name of a
// script and its arguments, divided by commas; the scripts are in a folder that the user names.
func (e *engine) checkTriggers() error {
	triggers := []string{e.Trigger}
	for i := range e.stages {
		if e.chosen(e.stages[i].Stage) {
			triggers = append(triggers, e.stages[i].Trigger)
		}
	}
	for _, trigger := range triggers {
		if trigger == "" {
			continue
		}
		name := strings.Split(trigger, ",")[0]
		if e.Triggers == "" {
			return fmt.Errorf("the workload's trigger runs the script %s; name the folder that holds it "+
				"(--triggers), or take the trigger out", name)
		}
		info, err := os.Stat(filepath.Join(e.Triggers, filepath.Base(name)))
		if err != nil || !info.Mode().IsRegular() || name != filepath.Base(name) {
			return fmt.Errorf("the trigger's script %s is not in %s", name, e.Triggers)
		}
	}
	return nil
}

// trigger runs a trigger's script and waits for it: with its arguments before, with -k afterwards.
func (e *engine) trigger(ctx context.Context, trigger string, before bool) {
	if trigger == "" {
		return
	}
	words := strings.Split(trigger, ",")
	arguments := words[1:]
	if !before {
		arguments = []string{"-k"}
	}
	path := filepath.Join(e.Triggers, words[0])
	command := exec.CommandContext(ctx, "/bin/sh", append([]string{path}, arguments...)...)
	if err := command.Run(); err != nil && ctx.Err() == nil {
		e.Warn(fmt.Sprintf("the trigger %s failed: %v", words[0], err)) // COSBench goes on, too
	}
}
