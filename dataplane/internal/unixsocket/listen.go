// Package unixsocket opens the control sockets of the data plane's programs.
package unixsocket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

var umask sync.Mutex // the umask belongs to the process

// Listen opens a control socket, with mode 0600 from the start. It replaces a socket file that a
// killed process left, but not one in use; the error then names its `owner`.
func Listen(path, owner string) (net.Listener, error) {
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("the control socket %s belongs to %s that is running", path, owner)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
	umask.Lock()
	old := syscall.Umask(0o177)
	listener, err := net.Listen("unix", path)
	syscall.Umask(old)
	umask.Unlock()
	if err != nil {
		return nil, fmt.Errorf("the control socket %s cannot be opened: %w", path, err)
	}
	return listener, nil
}
