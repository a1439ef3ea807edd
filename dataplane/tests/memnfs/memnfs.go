// Package memnfs is an in-memory NFS version 3 server for the tests and benchmarks of the proxy and
// the replayer. It serves one export, trusts every client and has no owners, times, links or
// devices.
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
	// Delay, if set, returns how long a call waits before service; calls can overtake each other.
	Delay func(sunrpc.Call) time.Duration
	// Hold, if set, returns a channel: the call is served on its closing, or at once if it is nil.
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

// Connections returns the number of connections.
func (s *Server) Connections() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.conns)
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
			if s.Delay == nil && s.Hold == nil {
				out = s.answer(out, call)
				continue
			}
			call.Arguments = append([]byte(nil), call.Arguments...)
			s.later(call, func() {
				reply := s.answer(nil, call)
				writing.Lock()
				defer writing.Unlock()
				_, _ = conn.Write(reply)
			})
		}
		if len(out) > 0 {
			if _, err := conn.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
	}
}

// later serves a call once its hold and delay are over.
func (s *Server) later(c sunrpc.Call, serve func()) {
	if s.Hold != nil {
		if held := s.Hold(c); held != nil {
			go func() {
				<-held
				serve()
			}()
			return
		}
	}
	delay := time.Duration(0)
	if s.Delay != nil {
		delay = s.Delay(c)
	}
	time.AfterFunc(delay, serve)
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

// node is a file, or a folder if entries is not nil.
type node struct {
	id      uint64
	data    []byte
	entries map[string]*node
	gone    bool
}

// FS is a tree of files. Its methods may be called concurrently.
type FS struct {
	mutex sync.RWMutex
	nodes map[uint64]*node
	last  uint64
}

// NewFS returns a tree with an empty root.
func NewFS() *FS {
	fs := &FS{nodes: map[uint64]*node{}}
	fs.add(true)
	return fs
}

const rootID = 1

func (fs *FS) add(folder bool) *node {
	fs.last++
	n := &node{id: fs.last}
	if folder {
		n.entries = map[string]*node{}
	}
	fs.nodes[n.id] = n
	return n
}

func handleOf(id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte("memnfs\x00\x01"), id)
}

func (fs *FS) find(handle []byte) (*node, nfs3.Status) {
	if len(handle) != 16 || string(handle[:8]) != "memnfs\x00\x01" {
		return nil, nfs3.ErrBadHandle
	}
	n := fs.nodes[binary.BigEndian.Uint64(handle[8:])]
	if n == nil || n.gone {
		return nil, nfs3.ErrStale
	}
	return n, nfs3.OK
}

func (fs *FS) folder(handle []byte) (*node, nfs3.Status) {
	n, status := fs.find(handle)
	if status == nfs3.OK && n.entries == nil {
		status = nfs3.ErrNotDir
	}
	return n, status
}

func (fs *FS) file(handle []byte) (*node, nfs3.Status) {
	n, status := fs.find(handle)
	if status == nfs3.OK && n.entries != nil {
		status = nfs3.ErrIsDir
	}
	return n, status
}

func goodName(name string) nfs3.Status {
	switch {
	case name == "" || name == "." || name == "..":
		return nfs3.ErrInvalid
	case len(name) > nfs3.MaxName:
		return nfs3.ErrNameTooLong
	}
	return nfs3.OK
}

func (fs *FS) create(handle []byte, name string, folder, exclusive bool) (*node, nfs3.Status) {
	parent, status := fs.folder(handle)
	if status == nfs3.OK {
		status = goodName(name)
	}
	if status != nfs3.OK {
		return nil, status
	}
	if n := parent.entries[name]; n != nil {
		if folder || exclusive || n.entries != nil {
			return nil, nfs3.ErrExists
		}
		return n, nfs3.OK
	}
	n := fs.add(folder)
	parent.entries[name] = n
	return n, nfs3.OK
}

func (fs *FS) remove(handle []byte, name string, folder bool) nfs3.Status {
	parent, status := fs.folder(handle)
	if status != nfs3.OK {
		return status
	}
	n := parent.entries[name]
	switch {
	case n == nil:
		return nfs3.ErrNoEntry
	case folder && n.entries == nil:
		return nfs3.ErrNotDir
	case !folder && n.entries != nil:
		return nfs3.ErrIsDir
	case len(n.entries) > 0:
		return nfs3.ErrNotEmpty
	}
	delete(parent.entries, name)
	fs.forget(n)
	return nfs3.OK
}

func (fs *FS) forget(n *node) {
	n.gone = true
	delete(fs.nodes, n.id)
}

func (fs *FS) rename(from []byte, oldName string, to []byte, newName string) nfs3.Status {
	source, status := fs.folder(from)
	if status != nfs3.OK {
		return status
	}
	target, status := fs.folder(to)
	if status == nfs3.OK {
		status = goodName(newName)
	}
	if status != nfs3.OK {
		return status
	}
	n := source.entries[oldName]
	if n == nil {
		return nfs3.ErrNoEntry
	}
	if old := target.entries[newName]; old != nil && old != n {
		if old.entries != nil || n.entries != nil {
			return nfs3.ErrExists
		}
		fs.forget(old)
	}
	delete(source.entries, oldName)
	target.entries[newName] = n
	return nfs3.OK
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

func (n *node) write(offset uint64, data []byte) nfs3.Status {
	end := offset + uint64(len(data))
	if end < offset || end > MaxFile {
		return nfs3.ErrTooBig
	}
	if end > uint64(len(n.data)) {
		n.resize(end)
	}
	copy(n.data[offset:], data)
	return nfs3.OK
}

// read returns a part of the file, valid as long as the file is locked.
func (n *node) read(offset uint64, count uint32) (data []byte, end bool) {
	size := uint64(len(n.data))
	offset = min(offset, size)
	stop := min(offset+uint64(count), size)
	return n.data[offset:stop], stop == size
}

// MaxTransfer is the maximum of bytes of a READ or WRITE.
const MaxTransfer = 1 << 20

const (
	typeFile   = 1
	typeFolder = 2
	setTime    = 2 // of sattr3: set to the time that follows
)

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

// procedures return false if their arguments are malformed.
var procedures = map[uint32]func(*FS, *sunrpc.Decoder, *sunrpc.Encoder) bool{
	nfs3.ProcNull:     func(*FS, *sunrpc.Decoder, *sunrpc.Encoder) bool { return true },
	nfs3.ProcGetattr:  (*FS).getattr,
	nfs3.ProcSetattr:  (*FS).setattr,
	nfs3.ProcLookup:   (*FS).lookup,
	nfs3.ProcAccess:   (*FS).access,
	nfs3.ProcRead:     (*FS).readProc,
	nfs3.ProcWrite:    (*FS).writeProc,
	nfs3.ProcCreate:   (*FS).createProc,
	nfs3.ProcMkdir:    (*FS).mkdir,
	nfs3.ProcRemove:   (*FS).removeProc,
	nfs3.ProcRmdir:    (*FS).rmdir,
	nfs3.ProcRename:   (*FS).renameProc,
	nfs3.ProcReaddir:  (*FS).readdir,
	nfs3.ProcFsinfo:   (*FS).fsinfo,
	nfs3.ProcPathconf: (*FS).pathconf,
	nfs3.ProcCommit:   (*FS).commit,
}

var readOnly = map[uint32]bool{nfs3.ProcNull: true, nfs3.ProcGetattr: true, nfs3.ProcLookup: true,
	nfs3.ProcAccess: true, nfs3.ProcRead: true, nfs3.ProcReaddir: true, nfs3.ProcFsinfo: true,
	nfs3.ProcPathconf: true, nfs3.ProcCommit: true}

func attributes(e *sunrpc.Encoder, n *node) {
	kind, size := uint32(typeFile), uint64(len(n.data))
	if n.entries != nil {
		kind, size = typeFolder, 4096
	}
	for _, v := range []uint32{kind, 0o777, 1, 0, 0} { // mode, links, owner, group
		e.Uint32(v)
	}
	e.Uint64(size)
	e.Uint64(size)
	e.Uint64(0) // device
	e.Uint64(1) // file system
	e.Uint64(n.id)
	for range 3 { // times
		e.Uint64(0)
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
		if n.entries != nil {
			status = nfs3.ErrIsDir
		} else {
			status = n.resize(size)
		}
	}
	e.Uint32(uint32(status))
	change(e, n)
	return true
}

func (fs *FS) lookup(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	parent, status := fs.folder(d.Opaque(nfs3.MaxHandle))
	name := d.String(nfs3.MaxPath)
	var n *node
	if status == nfs3.OK {
		if n = parent.entries[name]; name == "." {
			n = parent
		}
		if n == nil {
			status = nfs3.ErrNoEntry
		}
	}
	e.Uint32(uint32(status))
	if status == nfs3.OK {
		e.Opaque(handleOf(n.id))
		after(e, n)
	}
	after(e, parent)
	return d.OK()
}

func (fs *FS) access(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.find(d.Opaque(nfs3.MaxHandle))
	asked := d.Uint32()
	e.Uint32(uint32(status))
	after(e, n)
	if status == nfs3.OK {
		e.Uint32(asked)
	}
	return d.OK()
}

func (fs *FS) readProc(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.file(d.Opaque(nfs3.MaxHandle))
	offset, count := d.Uint64(), d.Uint32()
	e.Uint32(uint32(status))
	after(e, n)
	if status == nfs3.OK {
		data, end := n.read(offset, min(count, MaxTransfer))
		e.Uint32(uint32(len(data)))
		e.Bool(end)
		e.Opaque(data)
	}
	return d.OK()
}

func (fs *FS) writeProc(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.file(d.Opaque(nfs3.MaxHandle))
	offset, count, _ := d.Uint64(), d.Uint32(), d.Uint32()
	data := d.Opaque(MaxTransfer)
	if !d.OK() || int(count) != len(data) {
		return false
	}
	if status == nfs3.OK {
		status = n.write(offset, data)
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

func made(e *sunrpc.Encoder, n *node, status nfs3.Status) {
	e.Uint32(uint32(status))
	if status == nfs3.OK {
		e.Bool(true)
		e.Opaque(handleOf(n.id))
		after(e, n)
	}
	change(e, nil)
}

func (fs *FS) createProc(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	parent, name := d.Opaque(nfs3.MaxHandle), d.String(nfs3.MaxPath)
	how := d.Uint32()
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
	n, status := fs.create(parent, name, false, how != 0)
	if status == nfs3.OK && given {
		status = n.resize(size)
	}
	made(e, n, status)
	return true
}

func (fs *FS) mkdir(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	parent, name := d.Opaque(nfs3.MaxHandle), d.String(nfs3.MaxPath)
	sized(d)
	if !d.OK() {
		return false
	}
	n, status := fs.create(parent, name, true, true)
	made(e, n, status)
	return true
}

func (fs *FS) removeProc(d *sunrpc.Decoder, e *sunrpc.Encoder) bool { return fs.unlink(d, e, false) }
func (fs *FS) rmdir(d *sunrpc.Decoder, e *sunrpc.Encoder) bool      { return fs.unlink(d, e, true) }

func (fs *FS) unlink(d *sunrpc.Decoder, e *sunrpc.Encoder, folder bool) bool {
	parent, name := d.Opaque(nfs3.MaxHandle), d.String(nfs3.MaxPath)
	if !d.OK() {
		return false
	}
	e.Uint32(uint32(fs.remove(parent, name, folder)))
	change(e, nil)
	return true
}

func (fs *FS) renameProc(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	from, oldName := d.Opaque(nfs3.MaxHandle), d.String(nfs3.MaxPath)
	to, newName := d.Opaque(nfs3.MaxHandle), d.String(nfs3.MaxPath)
	if !d.OK() {
		return false
	}
	e.Uint32(uint32(fs.rename(from, oldName, to, newName)))
	change(e, nil)
	change(e, nil)
	return true
}

// readdir lists a folder; its cookies are places in the sorted list of names.
func (fs *FS) readdir(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.folder(d.Opaque(nfs3.MaxHandle))
	cookie, _, count := d.Uint64(), d.Uint64(), d.Uint32()
	e.Uint32(uint32(status))
	after(e, n)
	if status != nfs3.OK {
		return d.OK()
	}
	names := make([]string, 0, len(n.entries))
	for name := range n.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	e.Uint64(0)
	room := int(min(count, MaxTransfer)) - 128
	place := min(cookie, uint64(len(names)))
	for ; place < uint64(len(names)) && room > 0; place++ {
		name := names[place]
		e.Bool(true)
		e.Uint64(n.entries[name].id)
		e.String(name)
		e.Uint64(place + 1)
		room -= 24 + len(name)
	}
	e.Bool(false)
	e.Bool(place == uint64(len(names)))
	return d.OK()
}

func (fs *FS) fsinfo(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.find(d.Opaque(nfs3.MaxHandle))
	e.Uint32(uint32(status))
	after(e, n)
	if status == nfs3.OK {
		for range 2 { // reads, then writes: most, preferred, multiple
			e.Uint32(MaxTransfer)
			e.Uint32(MaxTransfer)
			e.Uint32(4096)
		}
		e.Uint32(MaxTransfer) // lists
		e.Uint64(MaxFile)
		e.Uint64(1)
		e.Uint32(0)
	}
	return d.OK()
}

func (fs *FS) pathconf(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.find(d.Opaque(nfs3.MaxHandle))
	e.Uint32(uint32(status))
	after(e, n)
	if status == nfs3.OK {
		for _, v := range []uint32{1, nfs3.MaxName, 1, 1, 0, 1} {
			e.Uint32(v)
		}
	}
	return d.OK()
}

func (fs *FS) commit(d *sunrpc.Decoder, e *sunrpc.Encoder) bool {
	n, status := fs.file(d.Opaque(nfs3.MaxHandle))
	d.Uint64()
	d.Uint32()
	e.Uint32(uint32(status))
	change(e, n)
	if status == nfs3.OK {
		e.Uint64(1)
	}
	return d.OK()
}
