package sim

import (
	"fmt"
	"time"
)

// BackgroundSpec describes a background load on a disk, like fio's: each job reads (or writes)
// blocks at random offsets of its own file.
type BackgroundSpec struct {
	// Jobs is the number of tasks. Job j uses the bytes from Offset + j*Range on.
	Jobs int
	// Depth is the number of I/Os a job keeps in flight (iodepth); with Sync it must be 1.
	Depth int
	// Block is the size of one I/O in bytes; offsets are multiples of it.
	Block int64
	// Offset and Range, in bytes, are the start of the first job's file and the size of each file.
	Offset, Range int64
	// Rate, if not 0, is the I/Os per second that each job offers as a Poisson process; late I/Os
	// are sent as soon as possible. 0 is a closed loop at full speed.
	Rate float64
	// Sync means that a job sleeps until its I/O has ended (psync rather than libaio).
	Sync  bool
	Write bool
}

// Validate returns an error of one sentence for the first value outside its range on a disk of
// `size` bytes.
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

// Background is a running background load. A job is one task: while it waits for a tag, it does not
// notice that its other I/Os have ended, and submits no more.
type Background struct {
	// Latency holds the I/Os that ended since the last Reset: from submission or, with a Rate, from
	// the intended start.
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
	due     ring[time.Duration] // intended starts in the past
	blocked bool
	timer   Timer
}

// NewBackground returns an idle load. The spec must be valid for the disk. `task` counts stalled
// tasks of the load's owner, and may be nil.
func NewBackground(spec BackgroundSpec, disk *Disk, task *Occupancy, stream *Stream) *Background {
	if err := spec.Validate(disk.Spec().Model.Size); err != nil {
		panic("sim: " + err.Error())
	}
	b := &Background{spec: spec, disk: disk, task: task, stream: stream}
	b.Forget()
	return b
}

// Forget drops all I/Os in flight, for a crashed disk that will not end them. The load is idle
// afterwards.
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

// Start makes every job submit, or resume where it was stopped.
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

// Stop submits no more I/Os; I/Os in flight end normally.
func (b *Background) Stop(k *Kernel) {
	b.running = false
	for j := range b.jobs {
		k.Cancel(b.jobs[j].timer)
		b.jobs[j].due.clear()
	}
}

// Running reports whether the load is on.
func (b *Background) Running() bool { return b.running }

// plan schedules a job's next intended start.
func (b *Background) plan(k *Kernel, j uint64) {
	gap := nanoseconds(b.stream.Exp() / b.spec.Rate * 1e9)
	b.jobs[j].timer = k.After(gap, (*backgroundDue)(b), j)
}

// submit lets a job submit as many I/Os as allowed.
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
