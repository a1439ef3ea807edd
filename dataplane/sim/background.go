package sim

import "time"

// BackgroundSpec describes a background load on a disk, like fio's: each job reads blocks at random
// offsets of its own file.
type BackgroundSpec struct {
	// Jobs is the number of tasks. Job j uses the bytes from j*Range on.
	Jobs int
	// Depth is the number of I/Os a job keeps in flight (iodepth); with Sync it must be 1.
	Depth int
	// Block is the size of one I/O in bytes; offsets are multiples of it. Range is that of a file.
	Block, Range int64
	// Rate, if not 0, is the I/Os per second that each job offers as a Poisson process; late I/Os
	// are sent as soon as possible. 0 is a closed loop at full speed.
	Rate float64
	// Sync means that a job sleeps until its I/O has ended (psync rather than libaio).
	Sync bool
}

// Background is a running background load. A job is one task: while it waits for a tag, it does not
// notice that its other I/Os have ended, and submits no more.
type Background struct {
	// Latency holds the I/Os that ended: from submission or, with a Rate, from the intended start.
	Latency Histogram

	spec    BackgroundSpec
	disk    *Disk
	stream  *Stream
	jobs    []backgroundJob
	stopped bool
}

type backgroundJob struct {
	started []time.Duration // of the I/Os in flight, by number
	free    []uint16
	due     ring[time.Duration] // intended starts in the past
	blocked bool
	timer   Timer
}

// StartBackground starts a load on a disk that has space for its files.
func StartBackground(k *Kernel, spec BackgroundSpec, disk *Disk, stream *Stream) *Background {
	b := &Background{spec: spec, disk: disk, stream: stream, jobs: make([]backgroundJob, spec.Jobs)}
	for j := range b.jobs {
		b.jobs[j].started = make([]time.Duration, spec.Depth)
		for i := spec.Depth; i > 0; i-- {
			b.jobs[j].free = append(b.jobs[j].free, uint16(i-1))
		}
	}
	for j := range b.jobs {
		if spec.Rate > 0 {
			b.plan(k, uint64(j))
		} else {
			b.submit(k, uint64(j))
		}
	}
	return b
}

// Stop submits no more I/Os; I/Os in flight end normally.
func (b *Background) Stop(k *Kernel) {
	b.stopped = true
	for j := range b.jobs {
		k.Cancel(b.jobs[j].timer)
		b.jobs[j].due.clear()
	}
}

// plan schedules a job's next intended start.
func (b *Background) plan(k *Kernel, j uint64) {
	gap := nanoseconds(b.stream.Exp() / b.spec.Rate * 1e9)
	b.jobs[j].timer = k.After(gap, (*backgroundDue)(b), j)
}

// submit lets a job submit as many I/Os as allowed.
func (b *Background) submit(k *Kernel, j uint64) {
	job := &b.jobs[j]
	for !b.stopped && !job.blocked && len(job.free) > 0 {
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
			Sync: b.spec.Sync, Bytes: b.spec.Block, Offset: int64(j)*b.spec.Range + block*b.spec.Block,
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
