// Package exercise uses an NFS server's files as a client would and compares every byte.
package exercise

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"hotbed/dataplane/internal/nfsclient"
)

// Files writes, truncates, renames, removes and reads files at random and compares all reads with
// the expected bytes. At the end it compares every file byte for byte and removes them.
//
// root is a folder in which only this call uses names that begin with name.
func Files(c *nfsclient.Client, root []byte, name string, random *rand.Rand, steps int) error {
	type file struct {
		name   string
		handle []byte
		data   []byte
	}
	var files []*file
	made := 0
	for range steps {
		var err error
		var f *file
		if len(files) > 0 {
			f = files[random.IntN(len(files))]
		}
		switch kind := random.IntN(12); {
		case f == nil || (kind == 0 && len(files) < 4):
			f = &file{name: fmt.Sprintf("%s-%d", name, made)}
			made++
			f.handle, err = c.Create(root, f.name)
			files = append(files, f)
		case kind <= 5:
			offset, data := random.IntN(200_000), make([]byte, 1+random.IntN(70_000))
			for i := range data {
				data[i] = byte(random.Uint32())
			}
			err = c.Write(f.handle, int64(offset), data)
			if end := offset + len(data); end > len(f.data) {
				f.data = append(f.data, make([]byte, end-len(f.data))...)
			}
			copy(f.data[offset:], data)
		case kind == 6:
			size := random.IntN(250_000)
			err = c.Truncate(f.handle, int64(size))
			if size < len(f.data) {
				f.data = f.data[:size:size]
			}
			f.data = append(f.data, make([]byte, size-len(f.data))...)
		case kind == 7:
			old := f.name
			f.name = fmt.Sprintf("%s-%d", name, made)
			made++
			err = c.Rename(root, old, root, f.name)
		case kind == 8 && len(files) > 2:
			err = c.Remove(root, f.name)
			if _, gone := c.Read(f.handle, 0, 1); err == nil && gone == nil {
				err = errors.New("a removed file can be read")
			}
			for i, other := range files {
				if other == f {
					files = append(files[:i], files[i+1:]...)
					break
				}
			}
		default:
			offset := random.IntN(len(f.data) + 1)
			count := 1 + random.IntN(70_000)
			var got []byte
			got, err = c.Read(f.handle, int64(offset), count)
			if want := f.data[offset:min(offset+count, len(f.data))]; err == nil && !bytes.Equal(got, want) {
				err = fmt.Errorf("%s: %d bytes at %d are not those that were written", f.name, count, offset)
			}
		}
		if err != nil {
			return err
		}
	}
	for _, f := range files {
		handle, size, err := c.Lookup(root, f.name)
		if err != nil {
			return err
		}
		if size != int64(len(f.data)) {
			return fmt.Errorf("%s has %d bytes, not %d", f.name, size, len(f.data))
		}
		for offset := 0; offset < len(f.data); offset += 50_000 {
			got, err := c.Read(handle, int64(offset), 50_000)
			if err != nil {
				return err
			}
			if !bytes.Equal(got, f.data[offset:min(offset+50_000, len(f.data))]) {
				return fmt.Errorf("%s differs from %d on", f.name, offset)
			}
		}
		if err := c.Remove(root, f.name); err != nil {
			return err
		}
	}
	return nil
}
