// Package librados reaches RADOS through Ceph's own client library, loaded at the first connection.
// So the program builds without a C compiler and Ceph's headers, and runs on machines without Ceph.
// It uses any node's librados (the C interface is the same since Ceph 16).
package librados

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library holds the librados functions in use; see its librados.h. Handles are C pointers, and a
// negative result is an errno.
type library struct {
	create         func(cluster *uintptr, user string) int32
	readConf       func(cluster uintptr, path string) int32
	setConf        func(cluster uintptr, option, value string) int32
	connect        func(cluster uintptr) int32
	shutdown       func(cluster uintptr)
	createContext  func(cluster uintptr, pool string, context *uintptr) int32
	destroyContext func(context uintptr)
	fullTry        func(context uintptr)
	waitForMap     func(cluster uintptr) int32
	blocklist      func(cluster uintptr, address string, seconds uint32) int32

	write    func(context uintptr, name string, b unsafe.Pointer, n uintptr, offset uint64) int32
	read     func(context uintptr, name string, b unsafe.Pointer, n uintptr, offset uint64) int32
	truncate func(context uintptr, name string, size uint64) int32
	stat     func(context uintptr, name string, size *uint64, seconds *int64) int32
	remove   func(context uintptr, name string) int32

	createWrite  func() uintptr
	releaseWrite func(operation uintptr)
	writeFull    func(operation uintptr, b unsafe.Pointer, n uintptr)
	appendTo     func(operation uintptr, b unsafe.Pointer, n uintptr)
	operate      func(operation, context uintptr, name string, seconds unsafe.Pointer, flags int32) int32

	openList  func(context uintptr, list *uintptr) int32
	nextName  func(list uintptr, name, locator, namespace *uintptr) int32
	closeList func(list uintptr)

	lock    func(context uintptr, name, lock, cookie, description string, duration unsafe.Pointer, flags uint8) int32
	unlock  func(context uintptr, name, lock, cookie string) int32
	lockers func(context uintptr, name, lock string, exclusive *int32, tag *byte, tagLen *uintptr, clients *byte,
		clientsLen *uintptr, cookies *byte, cookiesLen *uintptr, addresses *byte, addressesLen *uintptr) int64
	breakLock func(context uintptr, name, lock, client, cookie string) int32
}

func (l *library) symbols() map[string]any {
	return map[string]any{"rados_create": &l.create, "rados_conf_read_file": &l.readConf, "rados_conf_set": &l.setConf,
		"rados_connect": &l.connect, "rados_shutdown": &l.shutdown, "rados_ioctx_create": &l.createContext,
		"rados_ioctx_destroy": &l.destroyContext, "rados_set_pool_full_try": &l.fullTry,
		"rados_wait_for_latest_osdmap": &l.waitForMap, "rados_blocklist_add": &l.blocklist,
		"rados_write": &l.write, "rados_read": &l.read, "rados_trunc": &l.truncate, "rados_stat": &l.stat,
		"rados_remove": &l.remove, "rados_create_write_op": &l.createWrite,
		"rados_release_write_op": &l.releaseWrite, "rados_write_op_write_full": &l.writeFull,
		"rados_write_op_append": &l.appendTo, "rados_write_op_operate": &l.operate,
		"rados_nobjects_list_open": &l.openList, "rados_nobjects_list_next": &l.nextName,
		"rados_nobjects_list_close": &l.closeList, "rados_lock_exclusive": &l.lock, "rados_unlock": &l.unlock,
		"rados_list_lockers": &l.lockers, "rados_break_lock": &l.breakLock}
}

// fileName is the library's name in every Ceph since 2013.
const fileName = "librados.so.2"

var load = sync.OnceValues(func() (*library, error) {
	handle, err := purego.Dlopen(fileName, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("librados cannot be loaded: %w; install the package librados2", err)
	}
	l := &library{}
	for name, function := range l.symbols() {
		symbol, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("%s has no function %s: it is older than Ceph 16; install a newer librados2", fileName,
				name)
		}
		purego.RegisterFunc(function, symbol)
	}
	return l, nil
})

// Error is an error that librados returned.
type Error struct {
	What  string
	Errno syscall.Errno
}

func (e *Error) Error() string {
	switch e.Errno {
	case syscall.ESHUTDOWN:
		return fmt.Sprintf("%s: Ceph does not let this agent write any more: another one has taken its pool over", e.What)
	case syscall.EPERM, syscall.EACCES:
		return fmt.Sprintf("%s: %v; see to the user's key and capabilities", e.What, e.Errno)
	}
	return fmt.Sprintf("%s: %v", e.What, e.Errno)
}

// Unwrap returns the errno, for comparison with errors of syscall and fs.
func (e *Error) Unwrap() error { return e.Errno }

// check converts a result to an error.
func check(code int32, format string, args ...any) error {
	if code >= 0 {
		return nil
	}
	return &Error{fmt.Sprintf(format, args...), syscall.Errno(-code)}
}

// text copies a C string.
func text(at uintptr) string {
	if at == 0 {
		return ""
	}
	// The address is C memory, which the garbage collector neither moves nor frees.
	start := *(*unsafe.Pointer)(unsafe.Pointer(&at))
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(start), n))
}

// pointer returns the address of the bytes, or nil if there are none.
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
