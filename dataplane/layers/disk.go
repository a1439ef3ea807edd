// Package layers is a copy-on-write disk: a chain of sparse files, bottom to top.
//
// Every 4 KiB block is read from the topmost layer that has it and written to the top layer; a
// block in no layer reads as zeros. The file system determines a layer's blocks: a hole is an
// absent block, anything else (also written zeros) is data. There is no state besides the files,
// and no block is ever punched out. So all writes survive a kill -9 and are found at the next open.
//
// Copy layers only with tools that preserve holes, such as `cp --sparse=auto` (the default).
// `cp --sparse=always` and `fallocate --dig-holes` turn written zeros into absent blocks.
package layers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// BlockSize is the unit of presence in a layer, in bytes.
const BlockSize = 4096

// MaxLayers limits a chain, because a block's layer is stored in one byte.
const MaxLayers = 255

// ErrOutOfRange means that a request exceeds the disk.
var ErrOutOfRange = errors.New("the request is outside the disk")

// Disk is an open chain of layers. Methods are safe for concurrent use; overlapping requests are
// applied in some order, as on any disk.
type Disk struct {
	files []*os.File // bottom to top
	size  int64

	mu    sync.RWMutex // guards index
	index []uint8      // per block: the layer that serves it; 0 also if no layer has it

	// copyUp is held shared by writes of whole blocks to the top layer. Writes that complete a
	// partial block from below hold it exclusively, because the block must not change meanwhile.
	copyUp sync.RWMutex
}

// Size returns the capacity in bytes.
func (d *Disk) Size() int64 { return d.size }

func (d *Disk) top() uint8 { return uint8(len(d.files) - 1) }

func (d *Disk) check(off int64, n int) error {
	if off < 0 || n < 0 || off > d.size || int64(n) > d.size-off {
		return fmt.Errorf("%w: %d bytes at %d of %d", ErrOutOfRange, n, off, d.size)
	}
	return nil
}

// run returns the layer of the block at off, and the number of the n bytes in this layer.
func (d *Disk) run(off int64, n int) (layer uint8, length int) {
	end := off + int64(n)
	d.mu.RLock()
	defer d.mu.RUnlock()
	block := off / BlockSize
	layer = d.index[block]
	for block++; block*BlockSize < end && d.index[block] == layer; block++ {
	}
	return layer, int(min(end, block*BlockSize) - off)
}

// Extent returns the file that serves all n bytes at off, to read them without a copy; ok is false
// if several layers serve them.
func (d *Disk) Extent(off int64, n int) (file *os.File, ok bool) {
	if n == 0 || d.check(off, n) != nil {
		return nil, false
	}
	layer, length := d.run(off, n)
	return d.files[layer], length == n
}

// ReadAt fills p from offset off, one pread per run of blocks in the same layer.
func (d *Disk) ReadAt(p []byte, off int64) (int, error) {
	if err := d.check(off, len(p)); err != nil {
		return 0, err
	}
	done := 0
	for done < len(p) {
		layer, length := d.run(off+int64(done), len(p)-done)
		n, err := d.files[layer].ReadAt(p[done:done+length], off+int64(done))
		done += n
		if n < length {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // a layer was truncated while open
			}
			return done, err
		}
	}
	return done, nil
}

// Prefetch asks the kernel to load n bytes at off into memory, without waiting.
func (d *Disk) Prefetch(off int64, n int) {
	if d.check(off, n) != nil {
		return
	}
	for n > 0 {
		layer, length := d.run(off, n)
		// This is only advice; an error will show at the read.
		_ = unix.Fadvise(int(d.files[layer].Fd()), off, int64(length), unix.FADV_WILLNEED)
		off, n = off+int64(length), n-length
	}
}

// WriteAt writes p at offset off into the top layer. Partially covered blocks are first completed
// from below. On return the bytes are in the top layer's page cache: they survive the death of this
// process, but not of the machine (see Sync).
func (d *Disk) WriteAt(p []byte, off int64) (int, error) {
	if err := d.check(off, len(p)); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	end := off + int64(len(p))
	switch {
	case d.inTop(off, end):
		return d.files[d.top()].WriteAt(p, off)
	case off%BlockSize == 0 && end%BlockSize == 0:
		d.copyUp.RLock()
		defer d.copyUp.RUnlock()
		return d.writeWhole(p, off)
	}
	d.copyUp.Lock()
	defer d.copyUp.Unlock()
	done := 0
	for done < len(p) {
		n, err := d.writeSome(p[done:], off+int64(done))
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// writeSome writes the part of p up to the next change between whole and partial blocks.
func (d *Disk) writeSome(p []byte, off int64) (int, error) {
	within := int(off % BlockSize)
	if within == 0 && len(p) >= BlockSize {
		return d.writeWhole(p[:len(p)/BlockSize*BlockSize], off)
	}
	p = p[:min(len(p), BlockSize-within)]
	if d.inTop(off, off+int64(len(p))) {
		return d.files[d.top()].WriteAt(p, off)
	}
	// One write of the whole block: the top layer gets all of it or nothing.
	var block [BlockSize]byte
	start := off - int64(within)
	if _, err := d.ReadAt(block[:], start); err != nil {
		return 0, err
	}
	copy(block[within:], p)
	if _, err := d.writeWhole(block[:], start); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeWhole writes whole blocks and records the written ones.
func (d *Disk) writeWhole(p []byte, off int64) (int, error) {
	n, err := d.files[d.top()].WriteAt(p, off)
	first := off / BlockSize
	d.mu.Lock()
	for b := first; b < first+int64(n/BlockSize); b++ {
		d.index[b] = d.top()
	}
	d.mu.Unlock()
	return n, err
}

func (d *Disk) inTop(off, end int64) bool {
	layer, length := d.run(off, int(end-off))
	return layer == d.top() && length == int(end-off)
}

// Close closes the layers and releases their locks. There is nothing to write.
func (d *Disk) Close() error {
	var first error
	for _, f := range d.files {
		if err := f.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
