package protocol

import (
	"fmt"
	"math"
	"slices"
	"time"

	"hotbed/dataplane/twochoice"
)

// ClientConfig configures a client.
type ClientConfig struct {
	// ID is the client process's number, above 0; no other process may ever use it.
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
	op    *operation // nil: the probe's
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
func NewClient(c ClientConfig) *Client {
	return &Client{config: c, ops: map[uint64]*operation{}, calls: map[uint64]*exchange{}}
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
		c.probing.left--
		c.placeWhenProbed(now)
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

// probe is a group of writes being placed, with its probes (collaborative probe, section III.B).
// Only one probe is in progress; writes that arrive meanwhile share the next.
type probe struct {
	writes   []*operation
	wanted   []twochoice.Write
	probes   []twochoice.Probe
	readings []twochoice.Reading // by probe; until the decision, the age is the negative time of the answer
	cached   []twochoice.Reading // of other servers, passed on by servers; the age likewise
	left     int
}

func (p *probe) drop(o *operation) {
	if i := slices.Index(p.writes, o); i >= 0 {
		p.writes[i] = nil // keep the position: probes name writes by index
	}
}

// startProbe probes for the waiting writes, unless a probe is in progress.
func (c *Client) startProbe(now time.Duration) {
	for c.probing == nil && len(c.waiting) > 0 {
		n := min(len(c.waiting), c.config.Batch)
		p := &probe{writes: slices.Clone(c.waiting[:n])}
		c.waiting = slices.Delete(c.waiting, 0, n)
		for _, o := range p.writes {
			p.wanted = append(p.wanted, twochoice.Write{Home: twochoice.Server(o.home), Bytes: int64(o.to - o.from)})
		}
		c.probing = p
		p.probes = c.config.Scheduler.Probes(p.wanted, nil)
		p.readings = make([]twochoice.Reading, len(p.probes))
		for i, asked := range p.probes {
			c.call++
			p.readings[i].Server = asked.Server
			send := Send{Peer(asked.Server), Message{Kind: Probe, Call: c.call, Size: uint64(asked.Bytes)}}
			c.calls[c.call] = &exchange{send: send, piece: i}
			c.sends = append(c.sends, send)
		}
		p.left = len(p.probes)
		c.placeWhenProbed(now)
	}
}

// reading converts a load to a reading.
func reading(l Load) twochoice.Reading {
	return twochoice.Reading{Server: twochoice.Server(l.Node), Answered: true, InFlight: int32(l.InFlight),
		Load: l.Load, Latency: time.Duration(l.Latency), Age: time.Duration(min(l.Age, math.MaxInt64)),
		Ticket: twochoice.Ticket(l.Ticket)}
}

// probed handles the answer to a probe.
func (c *Client) probed(now time.Duration, x *exchange, m Message) {
	p := c.probing
	if len(m.Loads) == 0 || Peer(m.Loads[0].Node) != x.send.To {
		m.Loads = nil // not an answer to this question
	}
	for i, l := range m.Loads {
		r := reading(l)
		r.Age -= now
		if i == 0 {
			p.readings[x.piece] = r
		} else if int(l.Node) < c.config.Nodes {
			p.cached = append(p.cached, r)
		}
	}
	p.left--
	c.placeWhenProbed(now)
}

// placeWhenProbed places the writes once every probed node answered or timed out. It informs the
// nodes of the decision, and begins to store the writes.
func (c *Client) placeWhenProbed(now time.Duration) {
	p := c.probing
	if p.left > 0 {
		return
	}
	c.probing = nil
	for _, some := range [][]twochoice.Reading{p.readings, p.cached} {
		for i := range some {
			some[i].Age += now
		}
	}
	placed := c.config.Scheduler.Place(now, p.wanted, p.probes, p.readings, p.cached, nil)
	for i, o := range p.writes {
		if o == nil {
			placed[i] = twochoice.Placement{Server: twochoice.NoServer, Probe: -1}
			continue
		}
		o.targets = c.withCopies(Node(placed[i].Server), o, p.readings)
		if probe := placed[i].Probe; probe >= 0 {
			o.ticket = uint64(p.readings[probe].Ticket)
		}
	}
	c.inform(p, placed)
	for _, o := range p.writes {
		if o != nil {
			c.store(o)
		}
	}
	c.startProbe(now)
}

// inform sends the decisions and the loads to the probed and the chosen nodes, second copies' too.
func (c *Client) inform(p *probe, placed []twochoice.Placement) {
	writes, owners := p.wanted, p.writes
	for i, o := range p.writes {
		if o != nil && len(o.targets) > 1 {
			writes, owners = append(writes, p.wanted[i]), append(owners, o)
			placed = append(placed, twochoice.Placement{Server: twochoice.Server(o.targets[1]), Probe: -1})
		}
	}
	decisions, shared := c.config.Scheduler.Decide(writes, p.probes, p.readings, placed, nil, nil)
	var loads []Load
	for _, r := range shared {
		if r.Answered && len(loads) < MaxLoads {
			r.Ticket = 0
			loads = append(loads, load(r))
		}
	}
	for _, one := range decisions {
		m := Message{Kind: Decide, Ticket: uint64(one.Ticket), Loads: loads}
		if one.Write >= 0 {
			m.Write, m.Size = owners[one.Write].id, uint64(writes[one.Write].Bytes)
		}
		c.sends = append(c.sends, Send{Peer(one.Server), m})
	}
}

// withCopies adds the second copy's node: the least loaded other node that answered, else the home,
// else the first node's neighbour.
func (c *Client) withCopies(first Node, o *operation, readings []twochoice.Reading) []Node {
	if c.config.Copies == 1 {
		return []Node{first}
	}
	second, least := o.home, math.Inf(1)
	for _, r := range readings {
		if node := Node(r.Server); r.Answered && node != first && r.Load < least {
			second, least = node, r.Load
		}
	}
	if second == first {
		second = Node((int(first) + 1) % c.config.Nodes)
	}
	return []Node{first, second}
}

// withHome reports whether one message to the home both stores and orders the write.
func (c *Client) withHome(o *operation) bool {
	return len(o.targets) == 1 && o.targets[0] == o.home
}

// store sends the bytes (step 3 of figure 8) to the targets that lack them.
func (c *Client) store(o *operation) {
	o.phase = storing
	o.stored = make([]bool, len(o.targets))
	for i := range o.targets {
		c.put(o, i)
	}
}

func (c *Client) put(o *operation, i int) {
	m := Message{Kind: Put, Object: o.object, Write: o.id, From: o.from, To: o.to, Node: o.home,
		Register: c.withHome(o), Low: c.low(), Data: o.data}
	o.asked = o.asked || m.Register
	if i == 0 {
		m.Ticket = o.ticket
	}
	c.ask(o, o.targets[i], i, m)
}

// putDone handles the answer to a put.
func (c *Client) putDone(o *operation, x *exchange, m Message) {
	switch {
	case m.Code == Refused && x.send.To != Peer(o.home):
		c.finish(o, Finished{Err: m.Err(), Decided: !o.asked})
	case m.Kind == RegisterReply || m.Code == Fenced || m.Code == Refused:
		c.registered(o, m)
	case m.Code != OK:
		c.retarget(o, Node(x.send.To))
	default:
		o.stored[x.piece] = true
		if !slices.Contains(o.stored, false) {
			c.register(o)
		}
	}
}

// retarget replaces a target that is full, failed or unresponsive. The new target is the home, or
// the first remaining node after the home.
func (c *Client) retarget(o *operation, from Node) {
	i := slices.Index(o.targets, from)
	o.bad = append(o.bad, from)
	for step := range c.config.Nodes {
		node := Node((int(o.home) + step) % c.config.Nodes)
		if slices.Contains(o.bad, node) || slices.Contains(o.targets, node) {
			continue
		}
		c.hushTarget(o, i)
		o.targets[i], o.stored[i], o.ticket = node, false, 0
		c.put(o, i)
		return
	}
	c.finish(o, Finished{Decided: !o.asked, Err: fmt.Errorf(
		"no agent took %d bytes of %q: the last was %d; free space or wait for the others", o.to-o.from,
		o.object, from)})
}

// hushTarget forgets the requests to target i.
func (c *Client) hushTarget(o *operation, i int) {
	o.calls = slices.DeleteFunc(o.calls, func(call uint64) bool {
		x := c.calls[call]
		if x != nil && x.piece == i {
			delete(c.calls, call)
		}
		return x == nil || x.piece == i
	})
}

// register asks the home to order the write (step 4 of figure 8).
func (c *Client) register(o *operation) {
	c.hush(o)
	o.phase, o.asked = registering, true
	c.ask(o, o.home, 0, Message{Kind: Register, Object: o.object, Write: o.id, From: o.from, To: o.to,
		Targets: o.targets, Low: c.low()})
}

// registered ends a write (step 5), or restarts it after a fence.
func (c *Client) registered(o *operation, m Message) {
	switch m.Code {
	case OK:
		c.finish(o, Finished{Stamp: m.Stamp})
	case Fenced:
		c.hush(o)
		c.name(o)
		c.store(o)
	case Full:
		if c.withHome(o) && o.phase == storing && c.config.Nodes > 1 {
			c.retarget(o, o.home)
			return
		}
		c.finish(o, Finished{Err: m.Err()})
	default:
		c.finish(o, Finished{Err: m.Err(), Decided: m.Code == Refused})
	}
}
