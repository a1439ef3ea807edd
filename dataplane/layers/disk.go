// Package layers is a copy-on-write disk made of a chain of sparse files, bottom to top.
//
// Every 4 KiB block is read from the topmost layer that has it and written to the top layer; a
// block that no layer has reads as zeros. What a layer has is what its file system says it has: a
// hole is an absent block, anything else (a block of written zeros too) is data. Nothing but the
// files is kept, and no block is ever punched out, so whatever was written survives a kill -9 and
// is found again at the next open.
//
// Copy layers only with tools that keep holes as they are (`cp --sparse=auto`, the default);
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

// MaxLayers bounds a chain: a block's layer is kept in one byte.
const MaxLayers = 255

// ErrOutOfRange says that a request leaves the disk.
var ErrOutOfRange = errors.New("the request lies outside the disk")

// Disk is an open chain of layers. Its methods may be called from many goroutines; requests that
// overlap in time and place are applied in some order, as on any disk.
type Disk struct {
	files []*os.File // bottom to top
	size  int64

	mu    sync.RWMutex // guards index
	index []uint8      // per block: the layer that serves it; 0 also when no layer has it

	// copyUp is held shared by writes that bring whole blocks into the top layer and exclusively by
	// those that complete a partial block from below, which must not see the block change meanwhile.
	copyUp sync.RWMutex
}

// Size is the capacity in bytes.
func (d *Disk) Size() int64 { return d.size }

func (d *Disk) top() uint8 { return uint8(len(d.files) - 1) }

func (d *Disk) check(off int64, n int) error {
	if off < 0 || n < 0 || off > d.size || int64(n) > d.size-off {
		return fmt.Errorf("%w: %d bytes at %d of %d", ErrOutOfRange, n, off, d.size)
	}
	return nil
}

// run returns the layer of the block at off and how many of the n bytes from off on it serves.
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

// Extent returns the file that alone serves n bytes at off, for reading them without a copy; ok is
// false when they are spread over several layers.
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
				err = io.ErrUnexpectedEOF // a layer was shortened under us
			}
			return done, err
		}
	}
	return done, nil
}

// Prefetch asks the kernel to have n bytes at off in memory soon, without waiting for them.
func (d *Disk) Prefetch(off int64, n int) {
	if d.check(off, n) != nil {
		return
	}
	for n > 0 {
		layer, length := d.run(off, n)
		// Advice only: a failure shows when the bytes are read.
		_ = unix.Fadvise(int(d.files[layer].Fd()), off, int64(length), unix.FADV_WILLNEED)
		off, n = off+int64(length), n-length
	}
}

// WriteAt writes p at offset off into the top layer. Blocks that p covers only in part are
// completed from below first. When it returns, the bytes are in the top layer's page cache: they
// survive the death of this process, not that of the machine (see Sync).
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
	// One write of the whole block: it is in the top layer complete or not at all.
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

// writeWhole writes whole blocks and records those that arrived.
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

// Sync makes what was written survive the machine (fdatasync of the top layer).
func (d *Disk) Sync() error {
	return unix.Fdatasync(int(d.files[d.top()].Fd()))
}

// Close closes the layers and gives up their locks. It writes nothing: there is nothing to write.
func (d *Disk) Close() error {
	var first error
	for _, f := range d.files {
		if err := f.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
