package queuedisk

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/hanwen/go-fuse/v2/splice"

	"hotbed/dataplane/layers"
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
	disk    *layers.Disk
	shaper  *Shaper
	durable bool // pass fsync on to the host
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

// Fsync does nothing by default. A write is answered once the modelled disk has it, and the layer's
// page cache outlives this process. ENOSYS makes the kernel skip further calls.
func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	if !f.durable {
		return syscall.ENOSYS
	}
	return fs.ToErrno(f.disk.Sync())
}

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
