package sim

import (
	"fmt"
	"time"
)

// BackgroundSpec describes a disturbing load on a disk, as fio makes one: jobs that read (or write)
// blocks at random offsets of a file each.
type BackgroundSpec struct {
	// Jobs is how many tasks there are. Job j uses the bytes from Offset + j*Range on.
	Jobs int
	// Depth is how many I/Os a job keeps in flight (iodepth); with Sync it must be 1.
	Depth int
	// Block is the size of one I/O in bytes; offsets are multiples of it.
	Block int64
	// Offset and Range, in bytes, are where the first job's file begins and how long each is.
	Offset, Range int64
	// Rate, if not 0, is the I/Os a second that each job offers as a Poisson process; what cannot be
	// sent in time is sent as soon as possible. 0 is a closed loop that takes all it gets.
	Rate float64
	// Sync says that a job sleeps until its I/O has ended (psync rather than libaio).
	Sync  bool
	Write bool
}

// Validate reports, in one sentence, the first value that is outside its range on a disk of `size`
// bytes.
func (s BackgroundSpec) Validate(size int64) error {
	switch {
	case s.Jobs < 1 || s.Jobs > 4096:
		return fmt.Errorf("the background load has %d jobs, allowed is 1 to 4096", s.Jobs)
	case s.Depth < 1 || s.Depth > 1<<16 || s.Sync && s.Depth != 1:
		return fmt.Errorf("the background load has a depth of %d, allowed is 1 to %d, 1 with sync",
			s.Depth, 1<<16)
	case s.Block < 512 || s.Block > s.Range:
		return fmt.Errorf("the background load's blocks have %d bytes, allowed is 512 to the range",
			s.Block)
	case s.Offset < 0 || s.Range > size || s.Offset > size-s.Range*int64(s.Jobs):
		return fmt.Errorf("the background load uses %d ranges of %d bytes from %d on, the disk has %d",
			s.Jobs, s.Range, s.Offset, size)
	case !(s.Rate >= 0 && s.Rate <= 1e9):
		return fmt.Errorf("the background load's rate is %g a second, allowed is 0 to 1e9", s.Rate)
	}
	return nil
}

// Background is a running background load. A job is one task: while it waits for a tag it neither
// sees that others of its I/Os have ended nor submits more.
type Background struct {
	// Latency holds the I/Os that have ended since the last Reset: from submission or, with a Rate,
	// from the intended start.
	Latency Histogram

	spec    BackgroundSpec
	disk    *Disk
	task    *Occupancy
	stream  *Stream
	jobs    []backgroundJob
	running bool
}

type backgroundJob struct {
	started []time.Duration // of the I/Os in flight, by number
	free    []uint16
	due     ring[time.Duration] // intended starts that have passed
	blocked bool
	timer   Timer
}

// NewBackground returns a load at rest. The spec must be valid for the disk. `task` counts the
// stalled tasks of the load's owner, and may be nil.
func NewBackground(spec BackgroundSpec, disk *Disk, task *Occupancy, stream *Stream) *Background {
	if err := spec.Validate(disk.Spec().Model.Size); err != nil {
		panic("sim: " + err.Error())
	}
	b := &Background{spec: spec, disk: disk, task: task, stream: stream}
	b.Forget()
	return b
}

// Forget gives every I/O in flight up, for when the disk has crashed and will not end them. The load
// is at rest afterwards.
func (b *Background) Forget() {
	b.running = false
	b.jobs = make([]backgroundJob, b.spec.Jobs)
	for j := range b.jobs {
		b.jobs[j].started = make([]time.Duration, b.spec.Depth)
		for i := b.spec.Depth; i > 0; i-- {
			b.jobs[j].free = append(b.jobs[j].free, uint16(i-1))
		}
	}
}

// Start makes every job submit, or go on where it was stopped.
func (b *Background) Start(k *Kernel) {
	if b.running {
		return
	}
	b.running = true
	for j := range b.jobs {
		if b.spec.Rate > 0 {
			b.plan(k, uint64(j))
		} else {
			b.submit(k, uint64(j))
		}
	}
}

// Stop lets the I/Os in flight end and submits no more.
func (b *Background) Stop(k *Kernel) {
	b.running = false
	for j := range b.jobs {
		k.Cancel(b.jobs[j].timer)
		b.jobs[j].due.clear()
	}
}

// Running says whether the load is on.
func (b *Background) Running() bool { return b.running }

// plan schedules a job's next intended start.
func (b *Background) plan(k *Kernel, j uint64) {
	gap := nanoseconds(b.stream.Exp() / b.spec.Rate * 1e9)
	b.jobs[j].timer = k.After(gap, (*backgroundDue)(b), j)
}

// submit lets a job submit as much as it may.
func (b *Background) submit(k *Kernel, j uint64) {
	job := &b.jobs[j]
	for b.running && !job.blocked && len(job.free) > 0 {
		start := k.Now()
		if b.spec.Rate > 0 {
			if job.due.n == 0 {
				return
			}
			start = job.due.pop()
		}
		i := job.free[len(job.free)-1]
		job.free = job.free[:len(job.free)-1]
		job.started[i] = start
		block := b.stream.IntN(b.spec.Range / b.spec.Block)
		op := IO{
			Write: b.spec.Write, Sync: b.spec.Sync, Bytes: b.spec.Block,
			Offset:   b.spec.Offset + int64(j)*b.spec.Range + block*b.spec.Block,
			Task:     b.task,
			Admitted: (*backgroundAdmitted)(b),
		}
		if !b.disk.Submit(k, op, (*backgroundDone)(b), j<<16|uint64(i)) {
			job.blocked = true
		}
	}
}

type (
	backgroundDue      Background
	backgroundAdmitted Background
	backgroundDone     Background
)

func (e *backgroundDue) Handle(k *Kernel, j uint64) {
	b := (*Background)(e)
	b.jobs[j].due.push(k.Now())
	b.plan(k, j)
	b.submit(k, j)
}

func (e *backgroundAdmitted) Handle(k *Kernel, arg uint64) {
	b := (*Background)(e)
	b.jobs[arg>>16].blocked = false
	b.submit(k, arg>>16)
}

func (e *backgroundDone) Handle(k *Kernel, arg uint64) {
	b := (*Background)(e)
	job := &b.jobs[arg>>16]
	i := uint16(arg)
	b.Latency.Add(k.Now() - job.started[i])
	job.free = append(job.free, i)
	b.submit(k, arg>>16)
}
