package memnfs

import (
	"slices"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
)

// MaxTransfer is the most bytes of a READ or WRITE.
const MaxTransfer = 1 << 20

const (
	typeFile   = 1
	typeFolder = 2
	setTime    = 2 // of sattr3: to a time that follows
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

// procedures say whether their arguments could be read.
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

// after appends the attributes of a node that may not be there.
func after(e *sunrpc.Encoder, n *node) {
	e.Bool(n != nil)
	if n != nil {
		attributes(e, n)
	}
}

// change appends what a node was like before (not told) and after.
func change(e *sunrpc.Encoder, n *node) {
	e.Bool(false)
	after(e, n)
}

// sized reads an sattr3 and returns the size in it, if there is one.
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

// readdir's cookies are places in the sorted list of names.
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
