package cosbench

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"hotbed/dataplane/cosbench/access"
)

// action does an operation once. Its requests' failures are noted with the worker; an error is one
// after which the worker cannot go on.
type action func(ctx context.Context, w *worker, o *operationPlan) error

var actions = map[string]action{"read": read, "write": write, "list": list, "filewrite": fileWrite, "delete": remove}

// pick draws a container and an object.
func (w *worker) pick(o *operationPlan) (container, object string) {
	if o.containers != nil {
		container = o.containers.draw(w.random, w.index, w.workers)
	}
	if o.objects != nil {
		object = o.objects.draw(w.random, w.index, w.workers)
	}
	return container, object
}

func read(ctx context.Context, w *worker, o *operationPlan) error {
	container, object := w.pick(o)
	r := w.request(o)
	body, _, err := w.store.Get(ctx, container, object)
	if err == nil {
		answered := w.now()
		r.bytes, err = drain(body, w.buffer, o.hashCheck)
		err = errors.Join(err, body.Close())
		r.transfer = w.now() - answered
	}
	w.note(r, err)
	return nil
}

func write(ctx context.Context, w *worker, o *operationPlan) error {
	size := o.sizes.Draw(w.random)
	container, object := w.pick(o)
	w.put(ctx, o, container, object, size)
	return nil
}

// put stores an object of so many bytes.
func (w *worker) put(ctx context.Context, o *operationPlan, container, object string, size int64) {
	w.body.reset(w.run.pool, w.random, o, size)
	length := size
	if o.chunked {
		length = -1
	}
	r := w.request(o)
	err := w.store.Put(ctx, container, object, &w.body, length)
	r.bytes, r.transfer = w.body.at, w.body.transfer()
	w.note(r, err)
}

func list(ctx context.Context, w *worker, o *operationPlan) error {
	container, prefix := w.pick(o)
	r := w.request(o)
	n, err := w.store.List(ctx, container, prefix)
	r.bytes = n
	w.note(r, err)
	return nil
}

func remove(ctx context.Context, w *worker, o *operationPlan) error {
	container, object := w.pick(o)
	w.remove(ctx, o, container, object)
	return nil
}

func (w *worker) remove(ctx context.Context, o *operationPlan, container, object string) {
	r := w.request(o)
	w.note(r, w.store.Delete(ctx, container, object))
}

func fileWrite(ctx context.Context, w *worker, o *operationPlan) error {
	container := o.containers.draw(w.random, w.index, w.workers)
	chosen := o.files[o.chooseFile.Draw(w.random, 1, 1)-1]
	content, err := os.Open(chosen.path)
	if err != nil {
		w.note(w.request(o), err)
		return nil
	}
	defer func() { _ = content.Close() }() // it was only read
	var source io.ReadSeeker = content
	size := chosen.size
	if o.hashCheck {
		sum := md5.New()
		if _, err := io.Copy(sum, content); err != nil {
			w.note(w.request(o), err)
			return nil
		}
		source = &sealedFile{ReadSeeker: content, size: size, seal: []byte(checksum(sum))}
		size += hashLen
		_, _ = source.Seek(0, io.SeekStart) // a regular file can seek
	}
	sent := &timedFile{ReadSeeker: source}
	r := w.request(o)
	err = w.store.Put(ctx, container, chosen.name, sent, size)
	r.bytes, r.transfer = size, sent.last.Sub(sent.first)
	w.note(r, err)
	return nil
}

// timedFile notes when a file's first and last bytes were taken.
type timedFile struct {
	io.ReadSeeker
	first, last time.Time
}

func (t *timedFile) Read(into []byte) (int, error) {
	n, err := t.ReadSeeker.Read(into)
	if n > 0 {
		t.last = time.Now()
		if t.first.IsZero() {
			t.first = t.last
		}
	}
	return n, err
}

// sealedFile is a file with a checksum behind it.
type sealedFile struct {
	io.ReadSeeker
	size, at int64
	seal     []byte
}

func (s *sealedFile) Read(into []byte) (int, error) {
	if s.at < s.size {
		n, err := s.ReadSeeker.Read(into[:min(int64(len(into)), s.size-s.at)])
		s.at += int64(n)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // shorter than when the workload was read
		}
		return n, err
	}
	n := copy(into, s.seal[s.at-s.size:])
	s.at += int64(n)
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *sealedFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.size + int64(len(s.seal))
	}
	if offset < 0 || offset > s.size+int64(len(s.seal)) {
		return s.at, errors.New("a place outside of the file")
	}
	_, err := s.ReadSeeker.Seek(min(offset, s.size), io.SeekStart)
	s.at = offset
	return offset, err
}

// prepare makes the containers and objects of a worker's share; init makes containers alone. A
// container that cannot be made ends the stage, as in COSBench.
func prepare(ctx context.Context, w *worker, o *operationPlan) error {
	var failed error
	last := ""
	o.scan.each(o.Division, w.index, w.workers, func(container, object string) bool {
		if o.createContainer && container != last {
			if failed = w.store.CreateContainer(ctx, container); failed != nil {
				failed = fmt.Errorf("container %s could not be created: %w", container, failed)
				return false
			}
			last = container
		}
		if object != "" {
			w.put(ctx, o, container, object, o.sizes.Draw(w.random))
		}
		return !w.stopped()
	})
	return failed
}

// cleanup removes the objects of a worker's share and, when asked, each container after its
// objects; dispose removes containers alone. Where several workers share a container only the last of
// them finds it empty; the first that remains is told.
func cleanup(ctx context.Context, w *worker, o *operationPlan) error {
	last := ""
	dispose := func() {
		if o.deleteContainer && last != "" && !w.stopped() {
			if err := w.store.DeleteContainer(ctx, last); err != nil && ctx.Err() == nil {
				w.run.remains(last, err)
			}
		}
	}
	o.scan.each(o.Division, w.index, w.workers, func(container, object string) bool {
		if container != last {
			dispose()
			last = container
		}
		if object != "" {
			w.remove(ctx, o, container, object)
		}
		return !w.stopped()
	})
	dispose()
	return nil
}

// failureKinds are access.Kinds and what only the driver can tell: a wrong checksum.
var failureKinds = append(access.Kinds(), "checksum")

// failureKind is the index of an error's kind in failureKinds.
func failureKind(err error) int {
	kind := access.KindOf(err)
	if errors.Is(err, errHash) {
		kind = "checksum"
	}
	for i, name := range failureKinds {
		if name == kind {
			return i
		}
	}
	return len(failureKinds) - 2 // a kind that a store made up: the client's
}
