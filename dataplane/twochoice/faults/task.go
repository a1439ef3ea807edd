package faults

import (
	"iter"

	"hotbed/dataplane/twochoice/protocol"
)

// task is something that is under way on a disk, from one call to the next: between two of its calls
// anything else may happen there.
type task struct {
	disk *disk
	op   protocol.DiskOp // of an agent's; none when the agent starts
	next func() (struct{}, bool)
	stop func()
	wait func(struct{}) bool
	dead bool
}

// newTask is something that is to be done on a disk, not yet begun.
func newTask(d *disk, op protocol.DiskOp, do func()) *task {
	t := &task{disk: d, op: op}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.wait = yield
		do()
	})
	return t
}

// goOn makes the next call, and says whether there are more.
func (t *task) goOn() bool {
	t.disk.task = t
	defer func() { t.disk.task = nil }()
	_, more := t.next()
	return more
}

// die ends it in the middle of the call that it was about to make.
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
