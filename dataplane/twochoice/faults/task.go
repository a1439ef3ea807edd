package faults

import (
	"iter"

	"hotbed/dataplane/twochoice/protocol"
)

// task is a disk task that runs one call at a time: anything else may happen between two calls.
type task struct {
	disk *disk
	op   protocol.DiskOp // of an agent; none while the agent starts
	next func() (struct{}, bool)
	stop func()
	wait func(struct{}) bool
	dead bool
}

// newTask returns a disk task that has not begun.
func newTask(d *disk, op protocol.DiskOp, do func()) *task {
	t := &task{disk: d, op: op}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.wait = yield
		do()
	})
	return t
}

// goOn makes the next call, and reports whether more follow.
func (t *task) goOn() bool {
	t.disk.task = t
	defer func() { t.disk.task = nil }()
	_, more := t.next()
	return more
}

// die stops the task at its next call.
func (t *task) die() {
	t.disk.task = t
	defer func() { t.disk.task = nil }()
	t.stop()
}

func (t *task) step() error {
	if t.dead || !t.wait(struct{}{}) {
		t.dead = true
		return errCrash
	}
	return nil
}
