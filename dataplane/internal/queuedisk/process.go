package queuedisk

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeFlusher tells the kernel that its own write-back may be waiting for this process:
// allocations then never wait for write-back to the disk served here, and writing the layers is
// not throttled for other devices' dirty pages. Best effort: it needs CAP_SYS_RESOURCE and Linux
// 5.6.
func becomeFlusher() {
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0, 0)
}

// BecomeRealtime gives this process the lowest real-time priority and reports whether it got it. A
// disk does not compete for the processors of the machine it serves; its work is short, and what
// it is late by counts as the disk's latency. Refused without CAP_SYS_NICE and, on hosts with
// cgroup v1 and real-time group scheduling, outside the root cpu cgroup; the disk then runs as it
// is.
func BecomeRealtime() bool {
	priority := int32(1)
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_RR,
		uintptr(unsafe.Pointer(&priority)))
	return errno == 0
}
