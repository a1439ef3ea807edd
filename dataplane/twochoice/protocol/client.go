package protocol

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"hotbed/dataplane/twochoice"
)

// ClientConfig configures a client.
type ClientConfig struct {
	// ID is the client process's number; no other process may ever use it.
	ID uint64
	// Nodes is the number of agents; Home returns an object's home.
	Nodes int
	Home  func(object string) Node
	// Copies is the number of copies of a fragment, 1 or 2.
	Copies int
	// Batch is the number of writes that share a collaborative probe; 1 means separate probes.
	Batch int
	// Attempts is the number of timeouts after which an operation is given up.
	Attempts int
	// Scheduler places writes; its servers are numbered like the agents.
	Scheduler twochoice.Scheduler
}

// Finished is the result of an operation.
type Finished struct {
	Op     uint64
	Data   []byte // of a read
	Stamp  uint64 // place in the object's order
	Write  WriteID
	Target Node // of a write: node of its first copy
	// Err is one sentence. Decided means that a failed write was not done and never will be.
	Err     error
	Decided bool
}

// Client is the client's state machine. Its driver sends the output of Take, calls Timeout for each
// unanswered request, and gets results from Take too.
type Client struct {
	config ClientConfig
	seq    uint64 // of the last write
	call   uint64 // of the last request
	number uint64 // of the last operation
	ops    map[uint64]*operation
	calls  map[uint64]*exchange
	live   []uint64 // counts of writes in progress, ascending

	waiting []*operation // for a probe
	probing *probe

	sends    []Send
	finished []Finished
}

// exchange is an unanswered request.
type exchange struct {
	op    *operation // nil: a probe's
	group *probe
	send  Send
	piece int // of a read; of a probe or a put its index
	tries int
	bad   []Node // targets that cannot give the piece
}

type phase uint8

const (
	choosing phase = iota
	storing
	registering
	asking
	fetching
)

// operation is a write or read in progress.
type operation struct {
	number   uint64
	read     bool
	phase    phase
	object   string
	home     Node
	from, to uint64
	timeouts int
	calls    []uint64

	// of a write
	data    []byte
	id      WriteID
	targets []Node
	stored  []bool
	bad     []Node // full or unresponsive nodes
	asked   bool   // the home was asked to order it under its current name
	ticket  uint64 // of the first target's preassignment
	loads   []Load // loads to report to the targets

	// of a read
	stamp  uint64
	buffer []byte
	pieces []Piece
	left   int
	gone   map[copyOf]int
}

// copyOf is a fragment on a node.
type copyOf struct {
	write WriteID
	on    Peer
}

// NewClient returns a client with nothing in progress.
func NewClient(c ClientConfig) (*Client, error) {
	switch {
	case c.ID == 0 || c.Home == nil || c.Scheduler == nil:
		return nil, errors.New("a client needs a number above 0, a placement and a scheduler")
	case c.Nodes < 1 || c.Copies < 1 || c.Copies > MaxTargets || c.Copies > c.Nodes:
		return nil, fmt.Errorf("%d copies on %d agents: allowed are 1 or 2, on as many agents or more",
			c.Copies, c.Nodes)
	case c.Batch < 1 || c.Attempts < 1:
		return nil, fmt.Errorf("batch %d and attempts %d: both are at least 1", c.Batch, c.Attempts)
	}
	return &Client{config: c, ops: map[uint64]*operation{}, calls: map[uint64]*exchange{}}, nil
}

// Take returns, once, the messages to send and the ended operations.
func (c *Client) Take() ([]Send, []Finished) {
	sends, finished := c.sends, c.finished
	c.sends, c.finished = nil, nil
	return sends, finished
}

// Waiting reports whether a request is unanswered.
func (c *Client) Waiting(call uint64) bool { return c.calls[call] != nil }

// Request returns an unanswered request, for its driver to resend.
func (c *Client) Request(call uint64) (Send, bool) {
	if x := c.calls[call]; x != nil {
		return x.send, true
	}
	return Send{}, false
}

// Write begins to write data at offset `from` of an object; data must not change until it ends.
func (c *Client) Write(now time.Duration, object string, from uint64, data []byte) (op uint64, err error) {
	o, err := c.begin(object, from, uint64(len(data)))
	if err != nil {
		return 0, err
	}
	o.data = data
	c.name(o)
	c.waiting = append(c.waiting, o)
	c.startProbe(now)
	return o.number, nil
}

// Read begins to read n bytes at offset `from` of an object.
func (c *Client) Read(object string, from, n uint64) (op uint64, err error) {
	o, err := c.begin(object, from, n)
	if err != nil {
		return 0, err
	}
	o.read = true
	c.query(o)
	return o.number, nil
}

func (c *Client) begin(object string, from, n uint64) (*operation, error) {
	switch {
	case object == "" || len(object) > MaxName:
		return nil, fmt.Errorf("an object's name has %d bytes, allowed are 1 to %d", len(object), MaxName)
	case n == 0 || n > MaxData || from > MaxOffset-n:
		return nil, fmt.Errorf("%d bytes at %d of %q: allowed are 1 to %d, up to offset %d", n, from, object,
			MaxData, uint64(MaxOffset))
	}
	c.number++
	o := &operation{number: c.number, object: object, home: c.config.Home(object), from: from, to: from + n}
	c.ops[o.number] = o
	return o, nil
}

// name gives a write a name, a new name after a fence.
func (c *Client) name(o *operation) {
	c.forget(o.id)
	c.seq++
	o.id = WriteID{c.config.ID, c.seq}
	o.asked = false
	c.live = append(c.live, c.seq)
}

func (c *Client) forget(id WriteID) {
	if i, found := slices.BinarySearch(c.live, id.Seq); found {
		c.live = slices.Delete(c.live, i, i+1)
	}
}

// low returns the count below which this client wants no answers.
func (c *Client) low() uint64 {
	if len(c.live) > 0 {
		return c.live[0]
	}
	return c.seq + 1
}

// Name returns the current name of a write in progress; a fence changes it.
func (c *Client) Name(op uint64) (WriteID, bool) {
	o := c.ops[op]
	if o == nil || o.read {
		return WriteID{}, false
	}
	return o.id, true
}

// ask sends a request of an operation.
func (c *Client) ask(o *operation, to Node, piece int, m Message) {
	c.call++
	m.Call = c.call
	x := &exchange{op: o, send: Send{Peer(to), m}, piece: piece}
	c.calls[c.call] = x
	o.calls = append(o.calls, c.call)
	c.sends = append(c.sends, x.send)
}

// hush forgets the operation's requests, so that their answers are ignored.
func (c *Client) hush(o *operation) {
	for _, call := range o.calls {
		delete(c.calls, call)
	}
	o.calls = o.calls[:0]
}

func (c *Client) finish(o *operation, f Finished) {
	c.hush(o)
	delete(c.ops, o.number)
	if !o.read {
		c.forget(o.id)
		f.Write = o.id
		if len(o.targets) > 0 {
			f.Target = o.targets[0]
		}
	}
	f.Op = o.number
	c.finished = append(c.finished, f)
}

// Cancel gives up an operation. A write that the home may still order is then undecided.
func (c *Client) Cancel(op uint64, why error) {
	o := c.ops[op]
	if o == nil {
		return
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(w *operation) bool { return w == o })
	if c.probing != nil {
		c.probing.drop(o)
	}
	c.finish(o, Finished{Err: why, Decided: o.read || !o.asked})
}

// Receive handles an answer. It ignores unexpected answers, except a late probe answer. Its server
// must learn that it was not chosen, or it would wait until the preassignment expires.
func (c *Client) Receive(now time.Duration, from Peer, m Message) {
	x := c.calls[m.Call]
	if x == nil && m.Kind == ProbeReply && len(m.Loads) > 0 && m.Loads[0].Ticket != 0 {
		c.sends = append(c.sends, Send{from, Message{Kind: Decide, Ticket: m.Loads[0].Ticket}})
		return
	}
	if x == nil || x.send.To != from {
		return
	}
	if x.op == nil {
		if m.Kind == ProbeReply {
			delete(c.calls, m.Call)
			c.probed(now, x, m)
		}
		return
	}
	o := x.op
	switch {
	case o.read && o.phase == asking && m.Kind == QueryReply:
		delete(c.calls, m.Call)
		c.located(o, m)
	case o.read && o.phase == fetching && m.Kind == Data:
		delete(c.calls, m.Call)
		c.fetched(o, x, m)
	case !o.read && o.phase == storing && (m.Kind == PutReply || m.Kind == RegisterReply):
		delete(c.calls, m.Call)
		c.putDone(o, x, m)
	case !o.read && o.phase == registering && m.Kind == RegisterReply:
		delete(c.calls, m.Call)
		c.registered(o, m)
	}
}

// Timeout records that a request was not answered within the driver's limit.
func (c *Client) Timeout(now time.Duration, call uint64) {
	x := c.calls[call]
	if x == nil {
		return
	}
	if x.op == nil { // a node that does not answer a probe is slow, and not chosen
		delete(c.calls, call)
		if x.group == c.probing {
			c.probing.left--
			c.placeWhenProbed(now)
		}
		return
	}
	o := x.op
	x.tries++
	o.timeouts++
	if o.timeouts >= c.config.Attempts {
		c.Cancel(o.number, fmt.Errorf("agent %d did not answer %v of %q %d times; is it running?", x.send.To,
			x.send.Kind, o.object, x.tries))
		return
	}
	switch {
	case o.phase == storing && x.tries >= 2 && !(c.withHome(o)):
		c.retarget(o, Node(x.send.To))
	case o.phase == fetching && x.tries >= 2:
		c.query(o) // the range may have moved
	default:
		c.again(x)
	}
}

// again repeats a request; a fragment read goes to its other copy.
func (c *Client) again(x *exchange) {
	if x.op.read && x.send.Kind == Get {
		for _, other := range x.op.pieces[x.piece].Targets {
			if Peer(other) != x.send.To && !slices.Contains(x.bad, other) {
				x.send.To = Peer(other)
				break
			}
		}
	}
	c.sends = append(c.sends, x.send)
}
