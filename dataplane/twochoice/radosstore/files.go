package radosstore

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/redirectlog"
)

// chunkSize is the maximum number of a file's bytes in one object.
const chunkSize = 4 << 20

// files implements the log's files for redirectlog: each file is a row of objects
// "l.<number>.<chunk>". One object maps names to numbers and is replaced as a whole, so a rename is
// one operation. Every write is durable at once, so syncs do nothing.
type files struct {
	pool Pool
	// numbers holds the file numbers by name, as stored in the pool.
	numbers map[string]uint64
	next    uint64
}

// openFiles reads the list of files, and removes leftovers of a crash. Files without the object of
// names, which is older than all files, and a file with a hole are damage and refused.
func openFiles(pool Pool, objects []string) (*files, error) {
	f := &files{pool: pool, numbers: map[string]uint64{}, next: 1}
	there, err := f.read()
	if err != nil {
		return nil, err
	}
	chunks := map[uint64][]uint64{} // by file
	for _, name := range objects {
		if !strings.HasPrefix(name, "l.") {
			continue
		}
		var number, chunk uint64
		if _, err := fmt.Sscanf(name, "l.%x.%x", &number, &chunk); err != nil || chunkName(number, chunk) != name {
			return nil, fmt.Errorf("%s is not an agent's; give each agent a pool of its own", pool.Path(name))
		}
		f.next = max(f.next, number+1)
		chunks[number] = append(chunks[number], chunk)
	}
	if !there && len(chunks) > 0 {
		return nil, lost(pool.Path(namesName))
	}
	for _, number := range f.numbers {
		f.next = max(f.next, number+1)
		slices.Sort(chunks[number])
		for i, chunk := range chunks[number] {
			if chunk != uint64(i) {
				return nil, lost(pool.Path(chunkName(number, uint64(i))))
			}
		}
		delete(chunks, number)
	}
	for _, number := range slices.Sorted(maps.Keys(chunks)) {
		for _, chunk := range chunks[number] {
			if err := pool.Remove(chunkName(number, chunk)); err != nil && !missing(err) {
				return nil, fmt.Errorf("%s cannot be removed: %w", pool.Path(chunkName(number, chunk)), err)
			}
		}
	}
	return f, nil
}

func lost(path string) error {
	return fmt.Errorf("%s is not there, a part of the agent's redirect log; restore it from a copy", path)
}

func chunkName(number, chunk uint64) string { return fmt.Sprintf("l.%x.%x", number, chunk) }

// The object of names is text: a line "<number> <name>" for each file, then a CRC-32C of the lines.
const namesMax = 4096

// read reads the names, and reports whether they exist.
func (f *files) read() (bool, error) {
	b := make([]byte, namesMax)
	n, err := f.pool.Read(namesName, b, 0)
	if missing(err) {
		return false, nil
	}
	path := f.pool.Path(namesName)
	if err != nil {
		return false, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	text := string(b[:n])
	end := strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n') + 1
	if text[end:] != sumLine(text[:end]) {
		return false, fmt.Errorf("%s is damaged: its checksum is wrong; it says which objects are the redirect log", path)
	}
	for line := range strings.Lines(text[:end]) {
		var number uint64
		var name string
		if _, err := fmt.Sscanf(line, "%x %s\n", &number, &name); err != nil {
			return false, fmt.Errorf("%s is of another version: it has the line %q", path, line)
		}
		f.numbers[name] = number
	}
	return true, nil
}

func sumLine(text string) string {
	return fmt.Sprintf("%08x\n", crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
}

// change replaces the names, and then removes the file without a name.
func (f *files) change(names map[string]uint64, orphan uint64) error {
	var text strings.Builder
	for _, name := range redirectlog.FileNames(filestore.LogName) {
		if number := names[name]; number != 0 {
			fmt.Fprintf(&text, "%x %s\n", number, name)
		}
	}
	if err := f.pool.WriteFull(namesName, []byte(text.String()+sumLine(text.String()))); err != nil {
		return err
	}
	f.numbers = names
	if orphan != 0 {
		// A failure here only wastes space; opening tries again.
		_ = f.drop(orphan, 0)
	}
	return nil
}

// drop removes a file's objects from a chunk onward.
func (f *files) drop(number, from uint64) error {
	for chunk := from; ; chunk++ {
		err := f.pool.Remove(chunkName(number, chunk))
		if missing(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (f *files) absent(what, name string) error {
	return fmt.Errorf("%s %s: %w", what, f.Path(name), fs.ErrNotExist)
}

// Open opens an existing file.
func (f *files) Open(name string) (redirectlog.File, error) {
	number := f.numbers[name]
	if number == 0 {
		return nil, f.absent("open", name)
	}
	size := int64(0)
	for chunk := uint64(0); ; chunk++ {
		n, err := f.pool.Size(chunkName(number, chunk))
		if missing(err) {
			return &file{f, number, size}, nil
		}
		if err != nil {
			return nil, err
		}
		size = int64(chunk*chunkSize + n)
	}
}

// Create creates an empty file; an existing file loses its name.
func (f *files) Create(name string) (redirectlog.File, error) {
	names := maps.Clone(f.numbers)
	number, old := f.next, names[name]
	f.next++
	names[name] = number
	if err := f.change(names, old); err != nil {
		return nil, err
	}
	return &file{f, number, 0}, nil
}

// Rename renames a file and replaces any file of that name, atomically.
func (f *files) Rename(from, to string) error {
	names := maps.Clone(f.numbers)
	number, old := names[from], names[to]
	if number == 0 {
		return f.absent("rename", from)
	}
	delete(names, from)
	names[to] = number
	return f.change(names, old)
}

// Remove removes a file.
func (f *files) Remove(name string) error {
	names := maps.Clone(f.numbers)
	number := names[name]
	if number == 0 {
		return f.absent("remove", name)
	}
	delete(names, name)
	return f.change(names, number)
}

// SyncFolder does nothing: writes are durable.
func (f *files) SyncFolder() error { return nil }

// Path returns a file's name for messages.
func (f *files) Path(name string) string { return f.pool.Path(name) }

// file is an open file, for one goroutine.
type file struct {
	files  *files
	number uint64
	size   int64
}

// each calls `do` for each chunk in a range. It returns the number of bytes done before an error.
func (o *file) each(b []byte, offset int64, do func(name string, b []byte, offset uint64) error) (int, error) {
	done := 0
	for done < len(b) {
		at := uint64(offset) + uint64(done)
		n := int(min(uint64(len(b)-done), chunkSize-at%chunkSize))
		if err := do(chunkName(o.number, at/chunkSize), b[done:done+n], at%chunkSize); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// ReadAt implements io.ReaderAt.
func (o *file) ReadAt(b []byte, offset int64) (int, error) {
	wanted := len(b)
	b = b[:max(0, min(int64(wanted), o.size-offset))]
	n, err := o.each(b, offset, func(name string, b []byte, at uint64) error {
		read, err := o.files.pool.Read(name, b, at)
		if err == nil && read < len(b) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if err == nil && n < wanted {
		err = io.EOF
	}
	return n, err
}

// WriteAt writes durably; a file's objects must follow each other without holes.
func (o *file) WriteAt(b []byte, offset int64) (int, error) {
	if offset > o.size && offset/chunkSize > (o.size+chunkSize-1)/chunkSize {
		return 0, errors.New("a file of a log grows at its end only")
	}
	n, err := o.each(b, offset, o.files.pool.Write)
	o.size = max(o.size, offset+int64(n))
	return n, err
}

// Truncate truncates the file.
func (o *file) Truncate(size int64) error {
	first := uint64(size+chunkSize-1) / chunkSize
	if err := o.files.drop(o.number, first); err != nil {
		return err
	}
	if rest := uint64(size) % chunkSize; rest != 0 {
		if err := o.files.pool.Truncate(chunkName(o.number, first-1), rest); err != nil && !missing(err) {
			return err
		}
	}
	o.size = min(o.size, size)
	return nil
}

// Size returns the file's length.
func (o *file) Size() (int64, error) { return o.size, nil }

// Sync does nothing: writes are durable.
func (o *file) Sync() error { return nil }

// Close does nothing.
func (o *file) Close() error { return nil }
