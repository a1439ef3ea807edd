package replay

import (
	"fmt"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
)

// reply handles the reply to a piece.
func (e *engine) reply(record []byte) {
	if e.over {
		return
	}
	xid, d, err := sunrpc.ParseReply(record)
	p, known := e.pieces[xid]
	if !known {
		e.result.Errors["replies to no call"]++
		return
	}
	delete(e.pieces, xid)
	switch status := nfs3.Status(d.Uint32()); {
	case err != nil:
		e.result.Errors[err.Error()]++
	case status != nfs3.OK || !d.OK():
		e.result.Errors[fmt.Sprintf("NFS status %d", status)]++
	case readCount(p.of.Read, &d) != p.count:
		e.result.Errors["fewer bytes than asked for"]++
	default:
		e.result.Bytes += int64(p.count)
	}
	if p.of.left--; p.of.left == 0 {
		e.complete(p.of)
	}
}

// readCount reads the count from the results of a READ or WRITE.
func readCount(read bool, d *sunrpc.Decoder) uint32 {
	if !read && d.Uint32() == 1 { // attributes before
		d.Fixed(24)
	}
	if d.Uint32() == 1 { // attributes (after)
		d.Fixed(84)
	}
	return d.Uint32()
}
