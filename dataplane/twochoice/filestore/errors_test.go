package filestore

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"hotbed/dataplane/twochoice/protocol"
	"hotbed/dataplane/twochoice/redirectlog"
)

// failing is a folder with read and write errors that tests can set.
type failing struct {
	folder
	read, write error
}

type failingFile struct {
	redirectlog.File
	of *failing
}

func (f *failing) wrap(name string, file redirectlog.File, err error) (redirectlog.File, error) {
	if err != nil || strings.HasPrefix(name, LogName) {
		return file, err
	}
	return failingFile{file, f}, nil
}

func (f *failing) Open(name string) (redirectlog.File, error) {
	file, err := f.folder.Open(name)
	return f.wrap(name, file, err)
}

func (f *failing) Create(name string) (redirectlog.File, error) {
	file, err := f.folder.Create(name)
	return f.wrap(name, file, err)
}

func (f *failing) Ensure(name string) (redirectlog.File, error) {
	file, err := f.folder.Ensure(name)
	return f.wrap(name, file, err)
}

func (f failingFile) ReadAt(b []byte, offset int64) (int, error) {
	if err := f.of.read; err != nil {
		return 0, &fs.PathError{Op: "read", Path: "disk", Err: err}
	}
	return f.File.ReadAt(b, offset)
}

func (f failingFile) WriteAt(b []byte, offset int64) (int, error) {
	if err := f.of.write; err != nil {
		return 0, &fs.PathError{Op: "write", Path: "disk", Err: err}
	}
	return f.File.WriteAt(b, offset)
}

// Unreadable bytes are lost like damaged bytes. A file that cannot grow counts as full. An agent
// that stopped there would stop again at every such request. The outcome of a write that failed
// otherwise is unknown.
func TestWhatADiskRefusesIsTold(t *testing.T) {
	path := t.TempDir()
	opened, err := redirectlog.OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	disk := &failing{folder: folder{opened, path}}
	d, _, err := OpenDisk(disk, 3)
	if err != nil {
		t.Fatal(err)
	}
	base := protocol.DiskOp{Kind: protocol.WriteBase, Object: "o", To: 3, Data: []byte("abc")}
	for _, op := range []protocol.DiskOp{put([]byte("bytes")), base} {
		if done := d.Do(op); done.Err != nil {
			t.Fatal(done.Err)
		}
	}
	reads := []protocol.DiskOp{get(1001, 1004), {Kind: protocol.ReadBase, Object: "o", To: 3,
		Sums: protocol.SumsOf(0, []byte("abc"))}}
	again := put([]byte("more"))
	again.Write.Seq++
	for _, c := range []struct {
		read, write, want error
		ops               []protocol.DiskOp
	}{
		{read: syscall.EIO, want: protocol.ErrDamaged, ops: reads},
		{read: syscall.EACCES, ops: reads},
		{write: syscall.EFBIG, want: protocol.ErrFull, ops: []protocol.DiskOp{again, base}},
		{write: syscall.EDQUOT, want: protocol.ErrFull, ops: []protocol.DiskOp{again, base}},
		{write: syscall.EIO, ops: []protocol.DiskOp{again, base}},
	} {
		disk.read, disk.write = c.read, c.write
		for _, op := range c.ops {
			done := d.Do(op)
			for _, known := range []error{protocol.ErrDamaged, protocol.ErrFull, protocol.ErrGone} {
				if errors.Is(done.Err, known) != (known == c.want) {
					t.Errorf("operation %d, disk %v %v: %v", op.Kind, c.read, c.write, done.Err)
				}
			}
			why := c.read
			if why == nil {
				why = c.write
			}
			if !errors.Is(done.Err, why) {
				t.Errorf("operation %d does not say why: %v", op.Kind, done.Err)
			}
		}
	}
	disk.read, disk.write = nil, nil
	if got := d.Do(get(1001, 1004)); string(got.Data) != "yte" {
		t.Errorf("%q, %v", got.Data, got.Err)
	}
}
