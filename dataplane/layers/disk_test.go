package layers

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/seeds"
)

func open(t testing.TB, size int64, paths ...string) *Disk {
	t.Helper()
	d, err := Open(paths, size)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func write(t testing.TB, d *Disk, off int64, p []byte) {
	t.Helper()
	if n, err := d.WriteAt(p, off); err != nil || n != len(p) {
		t.Fatalf("write %d at %d: %d, %v", len(p), off, n, err)
	}
}

func read(t testing.TB, d *Disk, off int64, n int) []byte {
	t.Helper()
	p := bytes.Repeat([]byte{0xee}, n)
	if got, err := d.ReadAt(p, off); err != nil || got != n {
		t.Fatalf("read %d at %d: %d, %v", n, off, got, err)
	}
	return p
}

func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func TestOpenRefusesWithASentence(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	base := path("base")
	d := open(t, 8*BlockSize, base)
	_ = d.Close()
	_ = os.WriteFile(path("short"), make([]byte, BlockSize), 0o600)
	for _, c := range []struct {
		name, want string
		size       int64
		paths      []string
	}{
		{"no layers", "1 to 255 layers", 0, nil},
		{"missing lower", "cannot be opened", 0, []string{path("none"), path("top")}},
		{"no size", "positive multiple", 0, []string{path("new")}},
		{"odd size", "positive multiple", 1000, []string{path("new")}},
		{"other size", "all layers of a disk", 16 * BlockSize, []string{base}},
		{"short layer", "all layers of a disk", 0, []string{base, path("short")}},
		{"twice", "the same file", 0, []string{base, base}},
		{"folder", "not a regular file", 0, []string{dir, path("top")}},
	} {
		_, err := Open(c.paths, c.size)
		must.Refuse(t, err, c.want)
	}
}

func TestALayerHasOneWriter(t *testing.T) {
	dir := t.TempDir()
	base, one, two := filepath.Join(dir, "base"), filepath.Join(dir, "1"), filepath.Join(dir, "2")
	d := open(t, 8*BlockSize, base)
	_, err := Open([]string{base, one}, 0)
	must.Refuse(t, err, "in use")
	_ = d.Close()
	open(t, 0, base, one)
	open(t, 0, base, two) // one base may have many tops
	_, err = Open([]string{base, one}, 0)
	must.Refuse(t, err, "in use")
}

func TestRequestsOutsideTheDisk(t *testing.T) {
	d := open(t, 8*BlockSize, filepath.Join(t.TempDir(), "a"))
	for _, off := range []int64{-1, 8*BlockSize - 511, 1 << 62} {
		if _, err := d.WriteAt(make([]byte, 512), off); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("write at %d: %v", off, err)
		}
		if _, err := d.ReadAt(make([]byte, 512), off); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("read at %d: %v", off, err)
		}
	}
}

// Adjacent sectors of blocks not yet in the top layer, written concurrently, must all survive. One
// copy-up must not undo another, nor a whole block next to them.
func TestConcurrentPartialWritesAllSurvive(t *testing.T) {
	dir := t.TempDir()
	base, top := filepath.Join(dir, "base"), filepath.Join(dir, "top")
	const blocks = 64
	d := open(t, blocks*BlockSize, base)
	write(t, d, 0, fill('.', blocks*BlockSize))
	_ = d.Close()
	d = open(t, 0, base, top)
	var wg sync.WaitGroup
	for sector := range 7 { // the eighth keeps its lower content
		wg.Go(func() {
			for b := range int64(blocks) {
				if _, err := d.WriteAt(fill(byte('0'+sector), 512), b*BlockSize+int64(sector)*512); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for b := range int64(blocks) {
		got := read(t, d, b*BlockSize, BlockSize)
		for sector := range 8 {
			want := byte('0' + sector)
			if sector == 7 {
				want = '.'
			}
			if !bytes.Equal(got[sector*512:(sector+1)*512], fill(want, 512)) {
				t.Fatalf("block %d sector %d is %q, want %q", b, sector, got[sector*512], want)
			}
		}
	}
}

// script runs the same operations, decoded from data, on a chain and a byte array.
func script(t *testing.T, data []byte) {
	const blocks = 48
	const size = blocks * BlockSize
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "0")}
	d := open(t, size, paths...)
	ref := make([]byte, size)
	for step := 0; len(data) >= 4; step++ {
		op, where, length := data[0], int64(data[1])|int64(data[2])<<8, int(data[3])
		data = data[4:]
		off := where * 512 % size
		n := min((length%96+1)*512, int(size-off))
		switch op % 8 {
		case 0, 1, 2: // write a pattern
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(step + i/512 + 1)
			}
			write(t, d, off, p)
			copy(ref[off:], p)
		case 3: // write zeros
			write(t, d, off, make([]byte, n))
			copy(ref[off:], make([]byte, n))
		case 4, 5:
			if got := read(t, d, off, n); !bytes.Equal(got, ref[off:off+int64(n)]) {
				t.Fatalf("step %d: %d bytes at %d differ (%d layers)", step, n, off, len(paths))
			}
			if f, ok := d.Extent(off, n); ok {
				p := make([]byte, n)
				if _, err := f.ReadAt(p, off); err != nil || !bytes.Equal(p, ref[off:off+int64(n)]) {
					t.Fatalf("step %d: the extent's file differs: %v", step, err)
				}
			}
		case 6: // a snapshot: the top becomes a lower layer
			if len(paths) < 5 {
				paths = append(paths, filepath.Join(dir, string(rune('0'+len(paths)))))
			}
			fallthrough
		case 7: // the process dies: like a death, closing writes nothing
			_ = d.Close()
			d = open(t, size, paths...)
		}
	}
	if got := read(t, d, 0, size); !bytes.Equal(got, ref) {
		t.Fatal("the disk differs from the reference at the end")
	}
	_ = d.Close()
}

func FuzzLayers(f *testing.F) {
	seeds.Add(f, 60, 960)
	f.Add([]byte{0, 1, 0, 9, 6, 0, 0, 0, 3, 2, 0, 3, 4, 0, 0, 20, 6, 0, 0, 0, 1, 3, 0, 1, 4, 0, 0, 90})
	f.Fuzz(script)
}
