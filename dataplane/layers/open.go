package layers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Open opens the chain of layer files named bottom to top. A missing top layer is created with mode
// 0600; every other layer must exist. size is the capacity in bytes, a multiple of BlockSize; 0
// means the size of the lowest layer. All layers must have this size.
//
// The top layer is locked exclusively for this process, the others against becoming a top layer, so
// that two disks cannot write the same file. The locks end with the process, however it ends.
// Errors are sentences that name the file.
func Open(paths []string, size int64) (_ *Disk, err error) {
	if len(paths) == 0 || len(paths) > MaxLayers {
		return nil, fmt.Errorf("a disk has 1 to %d layers, not %d", MaxLayers, len(paths))
	}
	d := &Disk{size: size}
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	if size, err = chainSize(paths, size); err != nil {
		return nil, err
	}
	d.size = size
	for i, path := range paths {
		f, err := openLayer(path, size, i == len(paths)-1)
		if err != nil {
			return nil, err
		}
		d.files = append(d.files, f)
	}
	if len(paths) > 1 {
		if err := probeHoles(paths[len(paths)-1]); err != nil {
			return nil, err
		}
	}
	d.index = make([]uint8, size/BlockSize)
	for i := 1; i < len(d.files); i++ { // the lowest layer is the default: index 0
		if err := d.scan(uint8(i)); err != nil {
			return nil, fmt.Errorf("cannot list the blocks of layer %s: %w", paths[i], err)
		}
	}
	return d, nil
}

// chainSize determines the capacity and refuses chains that name a file twice.
func chainSize(paths []string, size int64) (int64, error) {
	seen := map[[2]uint64]string{}
	for i, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) && i == len(paths)-1 {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("layer %s cannot be opened: %w", path, err)
		}
		if !info.Mode().IsRegular() {
			return 0, fmt.Errorf("layer %s is not a regular file", path)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return 0, fmt.Errorf("layer %s cannot be opened: %w", path, err)
		}
		key := [2]uint64{uint64(st.Dev), st.Ino}
		if before, twice := seen[key]; twice {
			return 0, fmt.Errorf("layers %s and %s are the same file; a layer may appear once",
				before, path)
		}
		seen[key] = path
		if size == 0 {
			size = info.Size()
		}
	}
	if size <= 0 || size%BlockSize != 0 {
		return 0, fmt.Errorf("the disk's size is %d bytes, it must be a positive multiple of %d",
			size, BlockSize)
	}
	return size, nil
}

func openLayer(path string, size int64, top bool) (*os.File, error) {
	flags, lock := os.O_RDONLY, unix.LOCK_SH
	if top {
		flags, lock = os.O_RDWR|os.O_CREATE, unix.LOCK_EX
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("layer %s cannot be opened: %w", path, err)
	}
	if err := prepareLayer(f, size, top, lock); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func prepareLayer(f *os.File, size int64, top bool, lock int) error {
	if err := unix.Flock(int(f.Fd()), lock|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("layer %s is in use by another queue disk", f.Name())
		}
		return fmt.Errorf("layer %s cannot be locked: %w", f.Name(), err)
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("layer %s cannot be opened: %w", f.Name(), err)
	}
	if top && info.Size() == 0 { // new, or killed between its creation and this line
		if err := f.Truncate(size); err != nil {
			return fmt.Errorf("layer %s cannot be made %d bytes long: %w", f.Name(), size, err)
		}
	} else if info.Size() != size {
		return fmt.Errorf("layer %s is %d bytes long, the disk has %d; all layers of a disk have "+
			"its size", f.Name(), info.Size(), size)
	}
	return nil
}

// scan records the blocks in layer i that hide those of lower layers.
func (d *Disk) scan(i uint8) error {
	fd := int(d.files[i].Fd())
	for off := int64(0); off < d.size; {
		data, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		hole = min(hole, d.size)
		for b := data / BlockSize; b*BlockSize < hole; b++ {
			d.index[b] = i
		}
		off = hole
	}
	return nil
}

// probeHoles refuses a file system on which one written block makes adjacent blocks look written: a
// layer would hide lower data.
func probeHoles(layer string) error {
	dir := filepath.Dir(layer)
	f, err := os.CreateTemp(dir, ".holes-*")
	if err != nil {
		return fmt.Errorf("the folder of layer %s cannot be written: %w", layer, err)
	}
	defer func() { _ = f.Close() }()
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	const at = 1 << 20
	if err := f.Truncate(4 * at); err != nil {
		return err
	}
	if _, err := f.WriteAt(make([]byte, BlockSize), at); err != nil {
		return fmt.Errorf("the folder of layer %s cannot be written: %w", layer, err)
	}
	fd := int(f.Fd())
	data, err1 := unix.Seek(fd, 0, unix.SEEK_DATA)
	hole, err2 := unix.Seek(fd, at, unix.SEEK_HOLE)
	if err1 != nil || err2 != nil || data != at || hole != at+BlockSize {
		return fmt.Errorf("the file system of %s does not report holes of %d bytes, so layers "+
			"cannot be stacked there; use ext4, xfs, btrfs or tmpfs", dir, BlockSize)
	}
	return nil
}
