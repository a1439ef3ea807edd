package queuedisk

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeFlusher marks this process as one that the kernel's write-back may wait for. Its
// allocations then never wait for write-back to the disk served here, and its writes to layers are
// not throttled for other devices' dirty pages. Best effort: it needs CAP_SYS_RESOURCE and Linux
// 5.6.
func becomeFlusher() {
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0, 0)
}

// BecomeRealtime gives this process the lowest real-time priority and returns true if it succeeded.
// A real disk does not compete for its machine's CPUs; this process's work is short, and its
// lateness counts as the disk's latency. The kernel refuses without CAP_SYS_NICE, and outside the
// root cpu cgroup on hosts with cgroup v1 and real-time group scheduling. The disk then runs at
// normal priority.
func BecomeRealtime() bool {
	priority := int32(1)
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_RR,
		uintptr(unsafe.Pointer(&priority)))
	return errno == 0
}
