package faults

import (
	"fmt"
	"strings"

	"hotbed/dataplane/tests/simdisk"
	"hotbed/dataplane/twochoice/filestore"
	"hotbed/dataplane/twochoice/protocol"
)

// damage damages a node's disk, but never both copies of a log sector or a fragment.
func (w *world) damage(n *node) {
	kind := simdisk.Damage(w.faults.IntN(int64(simdisk.Damages)))
	may := func(p simdisk.Place) bool {
		if simdisk.SectorOf(p.Name) == simdisk.LogSector {
			return !n.disk.Hurt(simdisk.Place{Name: p.Name, At: p.At ^ simdisk.LogBlock})
		}
		on, spoilt := w.spoilt[p.Name]
		return w.plan.copies == 1 || !spoilt || on == n.id
	}
	for _, p := range n.disk.Hit(kind, may) {
		w.log("node %d: the sector of %s at %d is damaged (%d)", n.id, p.Name, p.At, kind)
		w.spoil(n, p.Name)
		w.result.damaged(kind, p.Name)
	}
}

// lose deletes a fragment if its other copy is intact.
func (w *world) lose(n *node) {
	p, ok := n.disk.Somewhere()
	if on, spoilt := w.spoilt[p.Name]; ok && strings.HasPrefix(p.Name, "f.") && (!spoilt || on == n.id) {
		w.log("node %d: %s is lost", n.id, p.Name)
		n.disk.Lose(p.Name)
		w.spoil(n, p.Name)
		w.result.Missing++
	}
}

// spoil records that a file on a node, and so its object's bytes, are damaged.
func (w *world) spoil(n *node, name string) {
	var id protocol.WriteID
	if _, err := fmt.Sscanf(name, "f.%x.%x", &id.Client, &id.Seq); err == nil {
		w.spoilt[name] = n.id
		if write := w.model.byName[id]; write != nil {
			w.damaged[write.object.name] = true
		}
	}
	for _, object := range w.names() {
		if strings.HasPrefix(name, filestore.BaseName(object)) {
			w.damaged[object] = true
		}
	}
}

// trust recomputes a base's sums from its contents, for a protocol that is broken on purpose.
func (n *node) trust(op protocol.DiskOp) {
	for i, s := range op.Sums {
		data := make([]byte, s.To-s.From)
		if base := n.disk.Bytes(filestore.BaseName(op.Object)); s.From < uint64(len(base)) {
			copy(data, base[s.From:])
		}
		op.Sums[i] = protocol.SumsOf(s.From, data)[0]
	}
}
