package protocol

import (
	"slices"
	"strings"
	"testing"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/twochoice"
)

func newClient(t *testing.T, policy twochoice.Policy, nodes, copies int) *Client {
	t.Helper()
	p := twochoice.Defaults(policy)
	p.MinWrite, p.Choices = 0, twochoice.RandomRandom
	scheduler, err := twochoice.New(p, twochoice.Servers(nodes), sim.NewStream(1, t.Name()), nil)
	must.Succeed(t, err)
	return NewClient(ClientConfig{ID: 5, Nodes: nodes, Home: func(string) Node { return 0 }, Copies: copies, Batch: 8,
		Attempts: 20, Scheduler: scheduler})
}

// writing returns a client that began to write.
func writing(t *testing.T, policy twochoice.Policy, nodes, copies int) *Client {
	t.Helper()
	c := newClient(t, policy, nodes, copies)
	_, err := c.Write(0, "o", 0, []byte("data"))
	must.Succeed(t, err)
	return c
}

func sent(c *Client) []Send {
	out, _ := c.Take()
	return out
}

func TestWritesThatWaitShareAProbe(t *testing.T) {
	c := newClient(t, twochoice.Both, 12, 1)
	for range 4 {
		_, err := c.Write(0, "o", 0, []byte("data"))
		must.Succeed(t, err)
	}
	first := sent(c)
	if len(first) != 2 { // the first write did not wait for the others
		t.Fatalf("%d probes for one write", len(first))
	}
	for _, s := range first {
		c.Receive(0, s.To, Message{Kind: ProbeReply, Call: s.Call, Loads: []Load{{Node: Node(s.To)}}})
	}
	probes := 0
	for _, s := range sent(c) {
		if s.Kind == Probe {
			probes++
		}
	}
	if probes != 6 {
		t.Errorf("%d probes for three writes", probes)
	}
}

func TestServersThatAnswerAProbeTooLateLearnTheDecision(t *testing.T) {
	c := writing(t, twochoice.Both, 12, 1)
	probes := sent(c)
	quick, slow := probes[0], probes[1]
	reply := func(s Send, ticket uint64) {
		c.Receive(0, s.To, Message{Kind: ProbeReply, Call: s.Call, Loads: []Load{{Node: Node(s.To), Ticket: ticket}}})
	}
	reply(quick, 9)
	c.Timeout(0, slow.Call)
	for _, s := range sent(c) {
		if chosen := s.To == quick.To; s.Kind == Put && (!chosen || s.Ticket != 9) || s.Kind == Decide && chosen != (s.Size == 4) {
			t.Errorf("%+v", s)
		}
	}
	reply(slow, 7)
	if reported := sent(c); len(reported) != 1 || reported[0].Kind != Decide || reported[0].To != slow.To || reported[0].Ticket != 7 {
		t.Errorf("%+v", reported)
	}
	reply(slow, 0) // nothing was preassigned
	if reported := sent(c); len(reported) != 0 {
		t.Errorf("%+v", reported)
	}
}

func TestAFullTargetIsReplacedByAnother(t *testing.T) {
	c := writing(t, twochoice.Uniform, 3, 1)
	seen := map[Peer]bool{}
	for range 3 {
		s := sent(c)
		if len(s) != 1 || s[0].Kind != Put || seen[s[0].To] {
			t.Fatalf("%+v", s)
		}
		seen[s[0].To] = true
		c.Receive(0, s[0].To, Message{Kind: PutReply, Call: s[0].Call, Code: Full, Text: "full"})
	}
	_, ended := c.Take()
	if len(ended) != 1 || ended[0].Err == nil || !strings.Contains(ended[0].Err.Error(), "no agent took 4 bytes") {
		t.Fatalf("%+v", ended)
	}
	// The home was asked to order the write too, so a late copy of the request may still order it.
	if ended[0].Decided {
		t.Error("a write that may be ordered late was called decided")
	}
}

func TestAWriteThatAStoreRefusesIsUndecidedOnceTheHomeWasAsked(t *testing.T) {
	for _, copies := range []int{1, 2} { // with two copies the home is asked after both are stored
		c := writing(t, twochoice.Fixed, 3, copies)
		puts := sent(c)
		if copies == 1 {
			c.Receive(0, 0, Message{Kind: RegisterReply, Call: puts[0].Call, Code: Full, Text: "full"})
			puts = sent(c)
		}
		put := puts[len(puts)-1]
		if put.Kind != Put || put.To == 0 {
			t.Fatalf("%+v", puts)
		}
		c.Receive(0, put.To, Message{Kind: PutReply, Call: put.Call, Code: Refused, Text: "no"})
		_, ended := c.Take()
		if len(ended) != 1 || ended[0].Err == nil || ended[0].Decided != (copies == 2) {
			t.Errorf("%d copies: %+v", copies, ended)
		}
	}
}

// One copy was slow once and the other is damaged: the slow copy must be asked again.
func TestACopyThatWasSlowIsAskedAgainWhenTheOtherIsDamaged(t *testing.T) {
	c := newClient(t, twochoice.Uniform, 3, 2)
	_, err := c.Read("o", 0, 2)
	must.Succeed(t, err)
	query := one(t, sent(c))
	c.Receive(0, 0, Message{Kind: QueryReply, Call: query.Call, Pieces: []Piece{{To: 2, Write: WriteID{1, 1},
		Targets: []Node{2, 1}}}})
	asked := []Peer{}
	for range 3 {
		get := sent(c)
		if len(get) != 1 || get[0].Kind != Get {
			t.Fatalf("%+v", get)
		}
		asked = append(asked, get[0].To)
		switch {
		case len(asked) == 1:
			c.Timeout(0, get[0].Call)
		case get[0].To == 1:
			c.Receive(0, 1, Message{Kind: Data, Call: get[0].Call, Code: Failed, Text: "agent 1: it is damaged"})
		default:
			c.Receive(0, 2, Message{Kind: Data, Call: get[0].Call, Data: []byte("ok")})
		}
	}
	_, ended := c.Take()
	if len(ended) != 1 || string(ended[0].Data) != "ok" || !slices.Equal(asked, []Peer{2, 1, 2}) {
		t.Errorf("asked were %v: %+v", asked, ended)
	}
}

func TestAnAnswerWithAGapIsInvalid(t *testing.T) {
	c := newClient(t, twochoice.Uniform, 3, 1)
	_, err := c.Read("o", 0, 4)
	must.Succeed(t, err)
	query := one(t, sent(c))
	c.Receive(0, 0, Message{Kind: QueryReply, Call: query.Call, Pieces: []Piece{{From: 0, To: 2}}})
	if _, ended := c.Take(); len(ended) != 1 || ended[0].Err == nil {
		t.Errorf("%+v", ended)
	}
}
