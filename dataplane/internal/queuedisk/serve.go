package queuedisk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"hotbed/dataplane/internal/unixsocket"
	"hotbed/dataplane/layers"
	"hotbed/dataplane/service"
)

// Config describes a queue disk to start. Errors about it are whole sentences.
type Config struct {
	Layers  []string      // files, bottom to top; a missing top is created
	Model   service.Model // Size 0: the size of the lowest layer
	Mount   string        // an empty folder
	Control string        // path of the control socket, "" for none
	PIDFile string        // written once the disk is usable, "" for none
	Durable bool          // fsync reaches the host's disk
}

// ErrBusy means that the disk was still in use at its end.
var ErrBusy = errors.New("the disk was still in use when it ended " +
	"(detach its loop device first); it was detached and its remaining requests fail")

// Serve runs the disk until ctx is done or the disk is unmounted, and then cleans up.
func Serve(ctx context.Context, c Config) error {
	if err := checkMountPoint(c.Mount); err != nil {
		return err
	}
	if c.PIDFile != "" {
		_ = os.Remove(c.PIDFile) // a killed disk's PID file must not announce this disk
	}
	disk, err := layers.Open(c.Layers, c.Model.Size)
	if err != nil {
		return err
	}
	defer func() { _ = disk.Close() }()
	c.Model.Size = disk.Size()
	shaper, err := NewShaper(c.Model)
	if err != nil {
		return err
	}
	defer shaper.Close()
	becomeFlusher()
	shaper.SetRealtime(BecomeRealtime())
	debug.SetGCPercent(400) // requests leave little garbage besides pooled buffers

	top, err := filepath.Abs(c.Layers[len(c.Layers)-1])
	if err != nil {
		return err
	}
	server, err := mount(c.Mount, top, &file{disk: disk, shaper: shaper, durable: c.Durable})
	if err != nil {
		return fmt.Errorf("cannot mount on %s: %w", c.Mount, err)
	}
	err = announce(ctx, c, shaper, server)
	return errors.Join(err, unmount(server, shaper, c.Mount))
}

// announce opens the control socket, writes the PID file and waits for the end.
func announce(ctx context.Context, c Config, shaper *Shaper, server *fuse.Server) error {
	if c.Control != "" {
		listener, err := unixsocket.Listen(c.Control, "a queue disk")
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }() // also removes the socket file
		go serveControl(listener, shaper)
	}
	if c.PIDFile != "" {
		pid := strconv.Itoa(os.Getpid()) + "\n"
		if err := os.WriteFile(c.PIDFile, []byte(pid), 0o600); err != nil {
			return fmt.Errorf("the PID file %s cannot be written: %w", c.PIDFile, err)
		}
		defer func() { _ = os.Remove(c.PIDFile) }()
	}
	gone := make(chan struct{})
	go func() {
		server.Wait()
		close(gone)
	}()
	select {
	case <-ctx.Done():
	case <-gone:
	}
	return nil
}

// unmount lets waiting requests end, then unmounts. A disk in use has two seconds to become free.
// After that it is detached, and its users see errors once this process has ended.
func unmount(server *fuse.Server, shaper *Shaper, dir string) error {
	shaper.SetShaping(false)
	gone := make(chan struct{})
	go func() {
		server.Wait()
		close(gone)
	}()
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Unmount(dir, 0)
		if err == nil || errors.Is(err, syscall.EINVAL) { // EINVAL: no longer mounted
			break
		}
		if time.Now().After(deadline) {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				return fmt.Errorf("cannot unmount %s: %w", dir, err)
			}
			return ErrBusy
		}
	}
	// The last answers go out. A mount namespace created meanwhile may hold a copy of the mount,
	// which ends with this process.
	select {
	case <-gone:
	case <-time.After(500 * time.Millisecond):
	}
	return nil
}

func checkMountPoint(dir string) error {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return errors.New("there is no /dev/fuse on this machine: load the kernel's fuse module " +
			"(modprobe fuse) or allow the device in this container")
	}
	info, err := os.Stat(dir)
	if errors.Is(err, syscall.ENOTCONN) {
		return fmt.Errorf("%s is the mount of a queue disk that was killed: run `umount -l %s` first",
			dir, dir)
	}
	if err != nil {
		return fmt.Errorf("the mount folder %s cannot be used: %w", dir, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("the mount point %s is not a folder", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("the mount folder %s cannot be used: %w", dir, err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("the mount folder %s is not empty; is a queue disk mounted there already?",
			dir)
	}
	return nil
}
