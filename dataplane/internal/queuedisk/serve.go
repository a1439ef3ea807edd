package queuedisk

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/hanwen/go-fuse/v2/splice"

	"hotbed/dataplane/internal/admission"
	"hotbed/dataplane/internal/limits"
	"hotbed/dataplane/internal/unixsocket"
	"hotbed/dataplane/layers"
	"hotbed/dataplane/service"
)

const (
	// FileName is the disk's name in the mount.
	FileName = "disk"
	// maxRequest is the largest read or write that the kernel sends in one piece, in bytes.
	maxRequest = 1 << 20
	// maxBackground is the maximum of asynchronous requests in flight from the kernel. The loop
	// device's queue (nr_requests) must be the tighter limit.
	maxBackground = 256
	// spliceFrom is the size from which a read is passed to the kernel as a file range. Below it,
	// copying takes fewer system calls than splicing and costs less.
	spliceFrom = 32 << 10
	// attrTimeout is long because a disk's attributes never change while it is mounted.
	attrTimeout = time.Hour
)

// spliceTo is the largest read that fits a pipe together with its header.
var spliceTo = splice.MaxPipeSize() - 2*syscall.Getpagesize()

// file is the disk: a fixed-size file that behaves like a block device.
type file struct {
	fs.Inode
	disk   *layers.Disk
	shaper *Shaper
}

var (
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeSetattrer = (*file)(nil)
	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
	_ fs.NodeWriter    = (*file)(nil)
	_ fs.NodeFsyncer   = (*file)(nil)
	_ fs.NodeFlusher   = (*file)(nil)
	_ fs.NodeAllocater = (*file)(nil)
)

func (f *file) attributes(out *fuse.AttrOut) {
	out.Mode = syscall.S_IFREG | 0o600
	out.Nlink = 1
	out.Size = uint64(f.disk.Size())
	out.Blocks = out.Size / 512
	out.Blksize = layers.BlockSize
	out.SetTimeout(attrTimeout)
}

func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.attributes(out)
	return fs.OK
}

// Setattr ignores truncation, as a block device does, and refuses changes of mode and owner.
func (f *file) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn,
	out *fuse.AttrOut) syscall.Errno {
	if in.Valid&(fuse.FATTR_MODE|fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
		return syscall.EPERM
	}
	f.attributes(out)
	return fs.OK
}

func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES, fs.OK
}

// Read first queues for the disk and uses the wait to load the data into the host's memory. So the
// host's own disk adds no time unless it is slower than the model.
func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (
	fuse.ReadResult, syscall.Errno) {
	if off < 0 || off >= f.disk.Size() {
		return fuse.ReadResultVector(nil), fs.OK
	}
	dest = dest[:min(int64(len(dest)), f.disk.Size()-off)]
	ticket := f.shaper.Admit(false, off, len(dest))
	if ticket.Fail {
		ticket.Wait()
		return nil, syscall.EIO
	}
	if len(dest) >= spliceFrom && len(dest) <= spliceTo {
		if _, one := f.disk.Extent(off, len(dest)); one {
			f.disk.Prefetch(off, len(dest))
			ticket.Wait()
			// Looked up again: a write may have moved blocks to the top layer meanwhile.
			if from, one := f.disk.Extent(off, len(dest)); one {
				return fuse.ReadResultFd(from.Fd(), off, len(dest)), fs.OK
			}
		}
	}
	_, err := f.disk.ReadAt(dest, off)
	ticket.Wait()
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	// A vector goes out by writev; the library tries to splice every other kind of result first.
	return fuse.ReadResultVector([][]byte{dest}), fs.OK
}

// Write first queues for the disk and writes during the wait; it answers once both are done.
func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, off int64) (
	uint32, syscall.Errno) {
	if off < 0 || off > f.disk.Size() || int64(len(data)) > f.disk.Size()-off {
		return 0, syscall.ENOSPC
	}
	ticket := f.shaper.Admit(true, off, len(data))
	if ticket.Fail {
		ticket.Wait()
		return 0, syscall.EIO
	}
	n, err := f.disk.WriteAt(data, off)
	ticket.Wait()
	if err != nil {
		return uint32(n), fs.ToErrno(err)
	}
	return uint32(n), fs.OK
}

// Fsync does nothing. A write is answered once the modelled disk has it, and the layer's page cache
// outlives this process. ENOSYS makes the kernel skip further calls.
func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return syscall.ENOSYS }

func (f *file) Flush(context.Context, fs.FileHandle) syscall.Errno { return syscall.ENOSYS }

// Allocate reports to the kernel that discard is not supported: written blocks stay data.
func (f *file) Allocate(context.Context, fs.FileHandle, uint64, uint64, uint32) syscall.Errno {
	return syscall.ENOSYS
}

// root is the mount's folder, which holds the one file.
type root struct {
	fs.Inode
	file *file
}

var (
	_ fs.NodeOnAdder   = (*root)(nil)
	_ fs.NodeGetattrer = (*root)(nil)
)

func (r *root) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = syscall.S_IFDIR | 0o700
	out.Nlink = 2
	out.SetTimeout(attrTimeout)
	return fs.OK
}

func (r *root) OnAdd(ctx context.Context) {
	child := r.NewPersistentInode(ctx, r.file, fs.StableAttr{Mode: syscall.S_IFREG, Ino: 2})
	r.AddChild(FileName, child, true)
}

// mount serves the file in dir; source is the name in the mount table.
func mount(dir, source string, f *file) (*fuse.Server, error) {
	timeout := attrTimeout
	return fs.Mount(dir, &root{file: f}, &fs.Options{
		MountOptions: fuse.MountOptions{
			FsName:              source,
			Name:                "hotbed",
			DirectMountStrict:   true,
			DirectMountFlags:    syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC,
			MaxWrite:            maxRequest,
			MaxBackground:       maxBackground,
			CongestionThreshold: maxBackground,
			DisableXAttrs:       true,
			// Without this, the kernel sends an asynchronous request (as from the loop device) only
			// after the answer to the previous one. The disk would then never see a queue and would
			// idle between requests.
			ExtraCapabilities: fuse.CAP_ASYNC_DIO,
		},
		EntryTimeout: &timeout,
		AttrTimeout:  &timeout,
	})
}

// Config describes a queue disk to start. Errors about it are whole sentences.
type Config struct {
	Layers  []string      // files, bottom to top; a missing top is created
	Model   service.Model // Size 0: the size of the lowest layer
	Mount   string        // an empty folder
	Control string        // path of the control socket, "" for none
	PIDFile string        // written once the disk is usable, "" for none
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
	server, err := mount(c.Mount, top, &file{disk: disk, shaper: shaper})
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

// request is one line on the control socket. A nil pointer is a field that was not given.
type request struct {
	Op            string   `json:"op"`
	On            *bool    `json:"on,omitempty"`
	PositioningUs *float64 `json:"positioning_us,omitempty"`
	Bandwidth     *float64 `json:"bandwidth_bytes,omitempty"`
	Slow          *float64 `json:"slow,omitempty"`
	Error         *bool    `json:"error,omitempty"`
}

// answer is the line sent back; only the stats request gives stats.
type answer struct {
	OK    bool   `json:"ok"`
	Error string `json:"message,omitempty"`
	PID   int    `json:"pid,omitempty"`
	*Stats
}

const operations = `"ping", "stats", "shape" (on), "set" (positioning_us, bandwidth_bytes) and ` +
	`"fault" (slow, error)`

// handle answers one request line.
func handle(s *Shaper, line []byte) answer {
	var r request
	if err := limits.Decode(line, &r); err != nil {
		return answer{Error: fmt.Sprintf("the request cannot be read: %v", err)}
	}
	if err := r.fields(); err != nil {
		return answer{Error: err.Error()}
	}
	var err error
	switch r.Op {
	case "ping":
		return answer{OK: true, PID: os.Getpid()}
	case "stats":
		stats := s.Stats()
		return answer{OK: true, Stats: &stats}
	case "shape":
		s.SetShaping(*r.On)
	case "set":
		var positioning *time.Duration
		if us := r.PositioningUs; us != nil {
			if !(math.Abs(*us) <= 1e12) {
				return answer{Error: fmt.Sprintf("positioning_us is %g, far too large", *us)}
			}
			p := time.Duration(math.Round(*us * 1e3))
			positioning = &p
		}
		err = s.SetModel(positioning, r.Bandwidth)
	case "fault":
		err = s.SetFault(r.Slow, r.Error)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{OK: true}
}

// fields refuses a request with fields of another operation, or with none of its own.
func (r request) fields() error {
	given := map[string]bool{
		"on": r.On != nil, "positioning_us": r.PositioningUs != nil,
		"bandwidth_bytes": r.Bandwidth != nil, "slow": r.Slow != nil, "error": r.Error != nil,
	}
	allowed, known := map[string][]string{
		"ping": {}, "stats": {}, "shape": {"on"},
		"set": {"positioning_us", "bandwidth_bytes"}, "fault": {"slow", "error"},
	}[r.Op]
	if !known {
		return fmt.Errorf("unknown op %q; there are %s", r.Op, operations)
	}
	found := len(allowed) == 0
	for _, name := range allowed {
		found = found || given[name]
		delete(given, name)
	}
	for name, there := range given {
		if there {
			return fmt.Errorf("op %q takes no %q; there are %s", r.Op, name, operations)
		}
	}
	if !found {
		return fmt.Errorf("op %q needs one of %q", r.Op, allowed)
	}
	return nil
}

// mostAsking bounds the connections to the control socket; a further one replaces the oldest.
const mostAsking = 32

// serveControl answers every connection, line by line, until the listener is closed.
func serveControl(listener net.Listener, s *Shaper) {
	listener = admission.NewListener(listener, mostAsking)
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // for example, no file descriptors are left
			continue
		}
		go func() {
			defer func() { _ = conn.Close() }()
			lines := bufio.NewScanner(conn)
			out := json.NewEncoder(conn)
			for lines.Scan() {
				if out.Encode(handle(s, lines.Bytes())) != nil {
					return
				}
			}
		}()
	}
}

// Ask sends one request line to the control socket at path and decodes the answer into out. An
// answer that is not ok becomes an error with the answer's message.
func Ask(path, line string, out any) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return err
	}
	reply, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return err
	}
	var status answer
	if err := json.Unmarshal(reply, &status); err != nil {
		return err
	}
	if !status.OK {
		return errors.New(status.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(reply, out)
}
