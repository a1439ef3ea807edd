// Package memnfs is an in-memory NFS version 3 server for the tests and benchmarks of the proxy and
// the replayer. It serves the files of one folder, to any client that has mounted it; a kernel asks
// for more than it answers.
package memnfs

import (
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"time"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
)

// Server serves NFS and its mount protocol on one port. Close ends it and every connection.
type Server struct {
	FS *FS
	// Hold, if set, returns a channel: the call is served on its closing, or at once if it is nil. Calls
	// can overtake each other.
	Hold func(sunrpc.Call) <-chan struct{}
	// Work is CPU time that every call takes, as calls of real servers do.
	Work time.Duration
	// Fragment, if above 0, is the maximum size of a reply's fragment, in bytes.
	Fragment int

	listener net.Listener
	mutex    sync.Mutex
	conns    map[net.Conn]bool
	done     sync.WaitGroup
}

// Export is the path that MNT must name.
const Export = "/"

// Listen starts serving at an address.
func (s *Server) Listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s.listener, s.conns = listener, map[net.Conn]bool{}
	s.done.Go(s.accept)
	return nil
}

// Address returns the listening address.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close ends the server.
func (s *Server) Close() {
	_ = s.listener.Close()
	s.mutex.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
	s.mutex.Unlock()
	s.done.Wait()
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mutex.Lock()
		if s.conns == nil {
			_ = conn.Close()
		} else {
			s.conns[conn] = true
			s.done.Go(func() { s.serve(conn) })
		}
		s.mutex.Unlock()
	}
}

// serve answers the calls of a connection: calls that arrived together, with one write.
func (s *Server) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.mutex.Lock()
		delete(s.conns, conn)
		s.mutex.Unlock()
	}()
	reader := sunrpc.Reader{Most: MaxTransfer + 4096}
	var out []byte
	var writing sync.Mutex
	for {
		n, err := conn.Read(reader.Space())
		if err != nil {
			return
		}
		reader.Filled(n)
		for {
			_, record, err := reader.Next()
			if err != nil {
				return
			}
			if record == nil {
				break
			}
			call, err := sunrpc.ParseCall(record)
			if err != nil {
				return
			}
			if s.Hold == nil {
				out = s.answer(out, call)
				continue
			}
			call.Arguments = append([]byte(nil), call.Arguments...)
			held := s.Hold(call)
			go func() {
				if held != nil {
					<-held
				}
				reply := s.answer(nil, call)
				writing.Lock()
				defer writing.Unlock()
				_, _ = conn.Write(reply)
			}()
		}
		if len(out) > 0 {
			if _, err := conn.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
	}
}

// After returns a channel that is closed after a time, for Hold.
func After(d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	time.AfterFunc(d, func() { close(done) })
	return done
}

// answer appends the reply to a call.
func (s *Server) answer(out []byte, c sunrpc.Call) []byte {
	for began := time.Now(); s.Work > 0 && time.Since(began) < s.Work; {
		continue // a call keeps its CPU busy
	}
	start := len(out)
	e := sunrpc.AppendReply(out, c.XID, sunrpc.Success)
	header := len(e.Bytes)
	state := uint32(sunrpc.ProgramUnavailable)
	switch {
	case c.Program == nfs3.Program && c.Version == nfs3.Version:
		state = s.FS.serve(c, &e)
	case c.Program == nfs3.MountProgram && c.Version == nfs3.MountVersion:
		state = mount(c, &e)
	case c.Program == nfs3.Program || c.Program == nfs3.MountProgram:
		state = sunrpc.ProgramMismatch
	}
	if state != sunrpc.Success {
		e.Bytes = e.Bytes[:header]
		e.Bytes[header-1] = byte(state)
		if state == sunrpc.ProgramMismatch {
			e.Uint32(3)
			e.Uint32(3)
		}
	}
	sunrpc.SealRecord(e.Bytes, start, 0)
	if s.Fragment > 0 {
		return append(out, sunrpc.Fragments(e.Bytes[start+4:], s.Fragment)...)
	}
	return e.Bytes
}

func mount(c sunrpc.Call, e *sunrpc.Encoder) uint32 {
	d := sunrpc.NewDecoder(c.Arguments)
	switch c.Procedure {
	case nfs3.MountNull, nfs3.MountUmnt, nfs3.MountUmntall:
	case nfs3.MountMnt:
		path := d.String(nfs3.MaxPath)
		if !d.OK() {
			return sunrpc.GarbageArguments
		}
		if path != Export {
			e.Uint32(uint32(nfs3.ErrNoEntry))
			return sunrpc.Success
		}
		e.Uint32(0)
		e.Opaque(handleOf(rootID))
		e.Uint32(1)
		e.Uint32(sunrpc.AuthUnix)
	case nfs3.MountExport:
		e.Bool(true)
		e.String(Export)
		e.Bool(false)
		e.Bool(false)
	default:
		return sunrpc.ProcedureUnavailable
	}
	return sunrpc.Success
}

// MaxFile is the largest size of a file in bytes.
const MaxFile = 1 << 32

// MaxTransfer is the maximum of bytes of a READ or WRITE.
const MaxTransfer = 1 << 20

// node is a file, or the folder.
type node struct {
	id   uint64
	data []byte
}

// FS is a folder of files. Its methods may be called concurrently.
type FS struct {
	mutex sync.RWMutex
	nodes map[uint64]*node
	names map[string]*node
	last  uint64
}

const rootID = 1

// NewFS returns an empty folder.
func NewFS() *FS {
	return &FS{nodes: map[uint64]*node{rootID: {id: rootID}}, names: map[string]*node{}, last: rootID}
}

const handlePrefix = "memnfs\x00\x01"

func handleOf(id uint64) []byte { return binary.BigEndian.AppendUint64([]byte(handlePrefix), id) }

// find returns the file or the folder of a handle.
func (fs *FS) find(handle []byte) (*node, nfs3.Status) {
	if len(handle) == 16 && string(handle[:8]) == handlePrefix {
		if n := fs.nodes[binary.BigEndian.Uint64(handle[8:])]; n != nil {
			return n, nfs3.OK
		}
	}
	return nil, nfs3.ErrStale
}

// resize sets a file's size; new bytes are zero.
func (n *node) resize(size uint64) nfs3.Status {
	if size > MaxFile {
		return nfs3.ErrTooBig
	}
	have := uint64(len(n.data))
	switch {
	case size < have:
		clear(n.data[size:])
		n.data = n.data[:size]
	case size > have:
		n.data = slices.Grow(n.data, int(size-have))[:size]
	}
	return nfs3.OK
}

// procedures return false if their arguments are malformed.
var procedures = map[uint32]func(*FS, *sunrpc.Decoder, *sunrpc.Encoder) bool{
	nfs3.ProcNull:    func(*FS, *sunrpc.Decoder, *sunrpc.Encoder) bool { return true },
	nfs3.ProcGetattr: (*FS).getattr,
	nfs3.ProcSetattr: (*FS).setattr,
	nfs3.ProcLookup:  (*FS).lookup,
	nfs3.ProcRead:    (*FS).read,
	nfs3.ProcWrite:   (*FS).write,
	nfs3.ProcCreate:  (*FS).create,
	nfs3.ProcRemove:  (*FS).remove,
	nfs3.ProcRename:  (*FS).rename,
}

var readOnly = map[uint32]bool{nfs3.ProcNull: true, nfs3.ProcGetattr: true, nfs3.ProcLookup: true, nfs3.ProcRead: true}

// serve appends the results of a call of the NFS program to a reply.
func (fs *FS) serve(c sunrpc.Call, e *sunrpc.Encoder) (state uint32) {
	d := sunrpc.NewDecoder(c.Arguments)
	procedure := procedures[c.Procedure]
	if procedure == nil {
		return sunrpc.ProcedureUnavailable
	}
	if readOnly[c.Procedure] {
		fs.mutex.RLock()
		defer fs.mutex.RUnlock()
	} else {
		fs.mutex.Lock()
		defer fs.mutex.Unlock()
	}
	if !procedure(fs, &d, e) {
		return sunrpc.GarbageArguments
	}
	return sunrpc.Success
}

const (
	typeFile   = 1
	typeFolder = 2
	setTime    = 2 // of sattr3: set to the time that follows
)

func attributes(e *sunrpc.Encoder, n *node) {
	kind := uint32(typeFile)
	if n.id == rootID {
		kind = typeFolder
	}
	for _, v := range []uint32{kind, 0o777, 1, 0, 0} { // mode, links, owner, group
		e.Uint32(v)
	}
	size := uint64(len(n.data))
	for _, v := range []uint64{size, size, 0, 1, n.id, 0, 0, 0} { // used, device, file system, id, times
		e.Uint64(v)
	}
}

// after appends the attributes of a node, which may be nil.
func after(e *sunrpc.Encoder, n *node) {
	e.Bool(n != nil)
	if n != nil {
		attributes(e, n)
	}
}

// change appends a node's attributes before (omitted) and after.
func change(e *sunrpc.Encoder, n *node) {
	e.Bool(false)
	after(e, n)
}

// sized reads an sattr3 and returns its size, if it has one.
func sized(d *sunrpc.Decoder) (size uint64, given bool) {
	for range 3 {
		if d.Uint32() == 1 {
			d.Uint32()
		}
	}
	if given = d.Uint32() == 1; given {
		size = d.Uint64()
	}
	for range 2 {
		if d.Uint32() == setTime {
			d.Uint64()
		}
	}
	return size, given
}

func (fs *FS) getattr(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.find(d.Opaque(nfs3.MaxHandle))
	e.Uint32(uint32(status))
	if status == nfs3.OK {
		attributes(e, n)
	}
	return d.OK()
}

func (fs *FS) setattr(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.find(d.Opaque(nfs3.MaxHandle))
	size, given := sized(d)
	if !d.OK() {
		return false
	}
	if status == nfs3.OK && given {
		status = n.resize(size)
	}
	e.Uint32(uint32(status))
	change(e, n)
	return true
}

func (fs *FS) lookup(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	folder, status := fs.find(d.Opaque(nfs3.MaxHandle))
	n := fs.names[d.String(nfs3.MaxPath)]
	if status == nfs3.OK && n == nil {
		status = nfs3.ErrNoEntry
	}
	e.Uint32(uint32(status))
	if status == nfs3.OK {
		e.Opaque(handleOf(n.id))
		after(e, n)
	}
	after(e, folder)
	return d.OK()
}

func (fs *FS) read(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.find(d.Opaque(nfs3.MaxHandle))
	offset, count := d.Uint64(), d.Uint32()
	e.Uint32(uint32(status))
	after(e, n)
	if status == nfs3.OK {
		size := uint64(len(n.data))
		start := min(offset, size)
		end := min(start+uint64(min(count, MaxTransfer)), size)
		e.Uint32(uint32(end - start))
		e.Bool(end == size)
		e.Opaque(n.data[start:end])
	}
	return d.OK()
}

func (fs *FS) write(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.find(d.Opaque(nfs3.MaxHandle))
	offset, count, _ := d.Uint64(), d.Uint32(), d.Uint32()
	data := d.Opaque(MaxTransfer)
	if !d.OK() || int(count) != len(data) {
		return false
	}
	end := offset + uint64(len(data))
	switch {
	case status != nfs3.OK:
	case end < offset || end > MaxFile:
		status = nfs3.ErrTooBig
	default:
		n.resize(max(end, uint64(len(n.data))))
		copy(n.data[offset:], data)
	}
	e.Uint32(uint32(status))
	change(e, n)
	if status == nfs3.OK {
		e.Uint32(count)
		e.Uint32(nfs3.FileSync)
		e.Uint64(1)
	}
	return true
}

func (fs *FS) create(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	_, status := fs.find(d.Opaque(nfs3.MaxHandle))
	name, how := d.String(nfs3.MaxPath), d.Uint32()
	var size uint64
	var given bool
	if how == 2 { // exclusive
		d.Uint64()
	} else {
		size, given = sized(d)
	}
	if !d.OK() {
		return false
	}
	n := fs.names[name]
	switch {
	case status != nfs3.OK:
	case n != nil && how != 0:
		status = nfs3.ErrExists
	default:
		if n == nil {
			fs.last++
			n = &node{id: fs.last}
			fs.nodes[n.id], fs.names[name] = n, n
		}
		if given {
			status = n.resize(size)
		}
	}
	e.Uint32(uint32(status))
	if status == nfs3.OK {
		e.Bool(true)
		e.Opaque(handleOf(n.id))
		after(e, n)
	}
	change(e, nil)
	return true
}

func (fs *FS) remove(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	_, status := fs.find(d.Opaque(nfs3.MaxHandle))
	name := d.String(nfs3.MaxPath)
	if !d.OK() {
		return false
	}
	if n := fs.names[name]; status == nfs3.OK && n == nil {
		status = nfs3.ErrNoEntry
	} else if status == nfs3.OK {
		delete(fs.names, name)
		delete(fs.nodes, n.id)
	}
	e.Uint32(uint32(status))
	change(e, nil)
	return true
}

func (fs *FS) rename(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	_, status := fs.find(d.Opaque(nfs3.MaxHandle))
	from := d.String(nfs3.MaxPath)
	d.Opaque(nfs3.MaxHandle)
	to := d.String(nfs3.MaxPath)
	if !d.OK() {
		return false
	}
	if n := fs.names[from]; status == nfs3.OK && n == nil {
		status = nfs3.ErrNoEntry
	} else if status == nfs3.OK {
		if old := fs.names[to]; old != nil && old != n {
			delete(fs.nodes, old.id)
		}
		delete(fs.names, from)
		fs.names[to] = n
	}
	e.Uint32(uint32(status))
	change(e, nil)
	change(e, nil)
	return true
}
