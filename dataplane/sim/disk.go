package sim

import (
	"fmt"
	"time"

	"hotbed/dataplane/service"
)

// DiskSpec describes a disk and the block layer in front of it.
type DiskSpec struct {
	// Model is the service time of one request, the same as the queue disk's.
	Model service.Model
	// Depth is the device's queue depth (nr_requests): the number of tags of reads and writes.
	Depth int
	// WakeBatch is the number of tags that must be freed before a waiter is woken; the first then
	// takes as many as it needs. 0 means 1. Linux wakes after an eighth of the depth, at most 8
	// (lib/sbitmap.c). This keeps a large I/O's parts together behind a full queue.
	WakeBatch int
	// MaxIO is the largest request in bytes (max_sectors_kb).
	MaxIO int64
}

// IO is one read or write that a task submits to a disk.
type IO struct {
	Write  bool
	Offset int64
	Bytes  int64
	// Sync means that the submitting task sleeps until the I/O has ended (pread, not libaio).
	Sync bool
	// Task, if not nil, counts stalled tasks of the submitter's kind. The submitter is stalled
	// while it waits for a tag and, if Sync, until the I/O has ended.
	Task *Occupancy
	// Admitted, if not nil, is called with Submit's argument when the last part of a waiting I/O
	// has got its tag: the submitting task then runs again.
	Admitted Handler
}

// DiskStats holds a disk's counters since its start.
type DiskStats struct {
	BytesRead, BytesWritten int64
	Busy                    time.Duration
	QueueArea               float64       // integral of the device requests, in seconds
	Stalled                 time.Duration // time with at least one task stalled on I/O
}

// Disk is a first-come-first-served disk (service.Server, one request at a time) behind a block
// layer. An I/O larger than MaxIO is split. Each part needs a tag while it is at the device, and
// waits for one in order of arrival. Like a kernel task, a waiting submitter asks for one tag at a
// time, so the parts of a large I/O queue like all other requests.
type Disk struct {
	spec    DiskSpec
	server  service.Server
	tags    int // free
	waiting ring[uint32]
	freed   int        // tags freed since the last wake while a submitter waited
	device  ring[part] // in order of their ends

	ios  []io
	free []uint32

	stats DiskStats
	queue Occupancy
	tasks Occupancy
}

// part is a request at the device.
type part struct {
	end time.Duration
	io  uint32
}

// io is an I/O with unfinished parts.
type io struct {
	IO
	next    int64 // bytes handed to the device
	left    int32 // parts at the device
	stalled bool  // counted in Task
	h       Handler
	arg     uint64
}

// NewDisk returns an idle disk. The spec must be valid.
func NewDisk(k *Kernel, spec DiskSpec) *Disk {
	d := &Disk{spec: spec, server: *service.NewServer(spec.Model, k.Now()), tags: spec.Depth}
	d.server.Slow = 1
	return d
}

// Submit passes an I/O to the disk and calls h.Handle(k, arg) when the I/O has ended. It returns
// true if the whole I/O got tags at once; otherwise the submitter is blocked until IO.Admitted is
// called.
func (d *Disk) Submit(k *Kernel, op IO, h Handler, arg uint64) bool {
	if op.Bytes <= 0 || op.Offset < 0 || op.Offset+op.Bytes > d.spec.Model.Size {
		panic(fmt.Sprintf("sim: an I/O of %d bytes at %d on a disk of %d", op.Bytes, op.Offset,
			d.spec.Model.Size))
	}
	var i uint32
	if n := len(d.free); n > 0 {
		i = d.free[n-1]
		d.free = d.free[:n-1]
	} else {
		d.ios = append(d.ios, io{})
		i = uint32(len(d.ios) - 1)
	}
	d.ios[i] = io{IO: op, h: h, arg: arg}
	if op.Sync {
		d.stall(k, i)
	}
	// A new I/O takes free tags even while others wait for a handover: their wake leaves none.
	if d.advance(k, i) {
		return true
	}
	if !op.Sync {
		d.stall(k, i)
	}
	d.waiting.push(i)
	return false
}

// advance passes parts of an I/O to the device while there are tags, and reports whether the whole
// I/O was passed.
func (d *Disk) advance(k *Kernel, i uint32) bool {
	o := &d.ios[i]
	for o.next < o.Bytes {
		if d.tags == 0 {
			return false
		}
		d.tags--
		d.admit(k, i)
	}
	return true
}

// admit passes the next part of an I/O to the device.
func (d *Disk) admit(k *Kernel, i uint32) {
	o, now := &d.ios[i], k.Now()
	n := min(d.spec.MaxIO, o.Bytes-o.next)
	_, end := d.server.Arrive(now, o.Offset+o.next, n)
	o.next += n
	o.left++
	if o.Write {
		d.stats.BytesWritten += n
	} else {
		d.stats.BytesRead += n
	}
	d.queue.Add(now, 1)
	d.device.push(part{end, i})
	if d.device.n == 1 {
		k.Post(end, (*diskEnd)(d), 0)
	}
}

func (d *Disk) stall(k *Kernel, i uint32) {
	o := &d.ios[i]
	o.stalled = true
	d.tasks.Add(k.Now(), 1)
	o.Task.Add(k.Now(), 1)
}

func (d *Disk) unstall(k *Kernel, i uint32) {
	o := &d.ios[i]
	o.stalled = false
	d.tasks.Add(k.Now(), -1)
	o.Task.Add(k.Now(), -1)
}

// diskEnd handles the end of the request in service.
type diskEnd Disk

func (e *diskEnd) Handle(k *Kernel, _ uint64) {
	d := (*Disk)(e)
	i := d.device.pop().io
	now := k.Now()
	d.queue.Add(now, -1)
	if d.device.n > 0 {
		k.Post(d.device.first().end, e, 0)
	}
	o := &d.ios[i]
	o.left--
	d.tags++
	ended := o.left == 0 && o.next == o.Bytes
	var h Handler
	var arg uint64
	if ended {
		if o.stalled {
			d.unstall(k, i)
		}
		h, arg = o.h, o.arg
		*o = io{}
		d.free = append(d.free, i)
	}
	d.handOver(k)
	if ended {
		h.Handle(k, arg)
	}
}

// handOver wakes waiting submitters in order of arrival, once enough tags are free. A submitter
// that needs more tags than available queues again, behind later arrivals.
func (d *Disk) handOver(k *Kernel) {
	w := &d.waiting
	if w.n == 0 {
		d.freed = 0
		return
	}
	if d.freed++; d.freed < d.spec.WakeBatch {
		return
	}
	d.freed = 0
	for w.n > 0 && d.tags > 0 {
		i := w.pop()
		if !d.advance(k, i) {
			w.push(i)
			continue
		}
		o := &d.ios[i]
		if o.stalled && !o.Sync {
			d.unstall(k, i)
		}
		if o.Admitted != nil {
			o.Admitted.Handle(k, o.arg)
		}
	}
}

// Slow multiplies the service time of later requests (a slow-disk fault); 1 is the healthy disk.
func (d *Disk) Slow(factor float64) { d.server.Slow = factor }

// Stats returns the current counters.
func (d *Disk) Stats(k *Kernel) DiskStats {
	s := d.stats
	s.Busy = d.server.Busy(k.Now())
	s.QueueArea = d.queue.Area(k.Now())
	s.Stalled = d.tasks.Some(k.Now())
	return s
}
