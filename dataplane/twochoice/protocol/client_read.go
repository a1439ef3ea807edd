package protocol

import "fmt"

// query asks the home for the range's location (steps a and b of figure 8), from the start.
func (c *Client) query(o *operation) {
	c.hush(o)
	o.phase = asking
	c.ask(o, o.home, 0, Message{Kind: Query, Object: o.object, From: o.from, To: o.to})
}

// located begins to fetch the pieces.
func (c *Client) located(o *operation, m Message) {
	if m.Code != OK {
		c.finish(o, Finished{Err: m.Err(), Stamp: m.Stamp})
		return
	}
	if err := whole(o, m.Pieces); err != nil {
		c.finish(o, Finished{Err: err})
		return
	}
	o.phase = fetching
	o.stamp, o.pieces, o.left = m.Stamp, m.Pieces, len(m.Pieces)
	o.buffer = make([]byte, o.to-o.from)
	for i, p := range m.Pieces {
		get := Message{Kind: Get, Object: o.object, Write: p.Write, From: p.From, To: p.To}
		to := o.home
		if len(p.Targets) > 0 {
			to = p.Targets[0]
		} else {
			get.Kind, get.Epoch, get.Gen = GetBase, m.Epoch, m.Gen
		}
		c.ask(o, to, i, get)
	}
}

// whole checks that the pieces cover the range, in order and without gaps.
func whole(o *operation, pieces []Piece) error {
	at := o.from
	for _, p := range pieces {
		if p.From != at || p.To <= at || p.To > o.to {
			break
		}
		at = p.To
	}
	if at != o.to {
		return fmt.Errorf("agent %d answered where %q is with pieces that are not the range %d to %d", o.home,
			o.object, o.from, o.to)
	}
	return nil
}

// mostGone limits how often a fragment may be gone although the home named it again. Once would
// suffice: the home names no fragment that it released.
const mostGone = 3

// lost counts a missing fragment, and reports whether it is lost rather than no longer needed.
func (o *operation) lost(w WriteID, from Peer) bool {
	if o.gone == nil {
		o.gone = map[copyOf]int{}
	}
	o.gone[copyOf{w, from}]++
	return o.gone[copyOf{w, from}] > mostGone
}

// fetched handles a piece's bytes.
func (c *Client) fetched(o *operation, x *exchange, m Message) {
	p := o.pieces[x.piece]
	switch {
	case m.Code == OK && uint64(len(m.Data)) == p.To-p.From:
		copy(o.buffer[p.From-o.from:], m.Data)
		o.left--
		if o.left == 0 {
			c.finish(o, Finished{Data: o.buffer, Stamp: o.stamp})
		}
	case m.Code == Changed || m.Code == Gone && !o.lost(p.Write, x.send.To):
		c.query(o)
	case m.Code != OK && len(p.Targets) > len(x.bad)+1: // another copy exists, though it may have been slow
		x.bad = append(x.bad, Node(x.send.To))
		c.calls[x.send.Call] = x
		c.again(x)
	case m.Code != OK:
		c.finish(o, Finished{Err: m.Err()})
	default:
		c.finish(o, Finished{Err: fmt.Errorf("agent %d answered %d bytes for %d of %q", x.send.To, len(m.Data),
			p.To-p.From, o.object)})
	}
}
