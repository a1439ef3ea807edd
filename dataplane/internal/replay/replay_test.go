package replay

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/reactor"
	"hotbed/dataplane/internal/sunrpc"
	"hotbed/dataplane/internal/traces"
	"hotbed/dataplane/tests/memnfs"
	"hotbed/dataplane/tests/must"
)

const ms = time.Millisecond

// prepared returns options to replay on a server with a file of 1 MiB.
func prepared(t *testing.T, server *memnfs.Server) Options {
	t.Helper()
	memnfs.Start(t, server)
	at := netip.MustParseAddrPort(server.Address())
	target := Target{Server: at, Mount: at, Export: memnfs.Export, File: "f"}
	must.Succeed(t, target.Prepare(context.Background(), 1<<20, 1, func(int64) {}))
	handle, size, err := target.Find()
	if err != nil || size != 1<<20 {
		t.Fatalf("%d bytes, %v", size, err)
	}
	return Options{Server: at, Handle: handle, FileSize: size, Transfer: 64 << 10,
		Drain: 10 * time.Second}
}

func run(t *testing.T, o Options, trace []traces.Request) Result {
	t.Helper()
	r, err := Run(context.Background(), o, traces.Listed(trace))
	must.Succeed(t, err)
	if len(r.Errors) != 0 {
		t.Fatalf("errors: %v", r.Errors)
	}
	return r
}

// spread is a trace of n requests, one every 200 microseconds, every third a write.
func spread(n int) []traces.Request {
	var trace []traces.Request
	for i := range n {
		trace = append(trace, traces.Request{At: time.Duration(i) * 200 * time.Microsecond, Offset: int64(i) * 4096,
			Size: 4096, Read: i%3 != 0})
	}
	return trace
}

// isRead separates the replayer's reads from the calls that prepare the file.
func isRead(c sunrpc.Call) bool {
	return c.Program == nfs3.Program && c.Procedure == nfs3.ProcRead
}

func TestEveryRequestIsSentAndCounted(t *testing.T) {
	server := &memnfs.Server{}
	o := prepared(t, server)
	o.SLO = time.Hour
	var logged int
	o.Log = func(at, latency time.Duration, read bool, size int64) {
		if read != (int(at/(200*time.Microsecond))%3 != 0) || size != 4096 || latency <= 0 {
			t.Errorf("logged %v %v %v %d", at, latency, read, size)
		}
		logged++
	}
	r := run(t, o, spread(300))
	if r.Whole.Requests != 300 || r.Whole.Reads.Count != 200 || r.Whole.Writes.Count != 100 ||
		r.Bytes != 300*4096 || r.SendLag.Count != 300 || logged != 300 || *r.Whole.Misses != 0 {
		t.Errorf("%+v, %d logged", r, logged)
	}
	if r.SecondHalf.Requests != 150 {
		t.Errorf("%d requests are in the second half", r.SecondHalf.Requests)
	}
	var sum int64
	for _, b := range r.Whole.All.Buckets {
		sum += b[2]
	}
	if sum != 300 || r.Whole.All.P50 > r.Whole.All.P99 || r.Whole.All.P99 > r.Whole.All.Max {
		t.Errorf("%d in buckets, %+v", sum, r.Whole.All)
	}
}

func TestArrivalsNeverWaitAndLatencyCountsFromTheTracesTime(t *testing.T) {
	const count = 100
	all := make(chan struct{})
	var mutex sync.Mutex
	seen := 0
	server := &memnfs.Server{}
	// No reply before every request has arrived.
	server.Hold = func(c sunrpc.Call) <-chan struct{} {
		if !isRead(c) {
			return nil
		}
		mutex.Lock()
		defer mutex.Unlock()
		if seen++; seen == count {
			close(all)
		}
		return all
	}
	o := prepared(t, server)
	trace := make([]traces.Request, count)
	for i := range trace {
		trace[i] = traces.Request{At: time.Duration(i) * ms, Size: 4096, Read: true, Offset: traces.UnknownOffset}
	}
	o.SLO = 1
	o.Log = func(at, latency time.Duration, _ bool, _ int64) {
		// The last request is due, and sent, no earlier than 99 ms after the first.
		if at+latency < (count-1)*ms {
			t.Errorf("the request of %v took %v", at, latency)
		}
	}
	if r := run(t, o, trace); r.MaxOutstanding != count || *r.Whole.Misses != count {
		t.Errorf("%d requests were outstanding at once, %d missed their SLO, want all %d of both",
			r.MaxOutstanding, *r.Whole.Misses, count)
	}
}

func TestRequestsAreSplitIntoTransfersAndFoldedIntoTheFile(t *testing.T) {
	o := prepared(t, &memnfs.Server{})
	r := run(t, o, []traces.Request{{Size: 300_001, Read: true, Offset: 0}, {Size: 200_003, Offset: 4096},
		{Size: 4096, Read: true, Offset: 1 << 50}, {Size: 1 << 40, Read: true}, {Size: 0, Read: true, Offset: 5}})
	if want := int64(300_001 + 200_003 + 4096 + 1<<20 + 1); r.Whole.Requests != 5 || r.Bytes != want {
		t.Errorf("%d bytes, want %d: %+v", r.Bytes, want, r)
	}
}

func TestClosedLoopKeepsSoManyInFlight(t *testing.T) {
	o := prepared(t, &memnfs.Server{Hold: func(sunrpc.Call) <-chan struct{} { return memnfs.After(ms) }})
	o.Closed = 4
	trace := spread(100)
	for i := range trace {
		trace[i].At *= 1e6 // the trace's times are ignored
	}
	r := run(t, o, trace)
	if r.Mode != "closed" || r.Whole.Requests != 100 || r.MaxOutstanding != 4 || r.SecondHalf.Requests != 50 ||
		r.SendLag.Count != 0 {
		t.Errorf("%+v", r)
	}
	o.Repeat, o.Duration = true, 300*ms
	if r := run(t, o, trace[:3]); r.Whole.Requests <= 3 || r.MaxOutstanding > 4 || r.SecondHalf.Requests == 0 ||
		r.SecondHalf.Requests > r.Whole.Requests-4 || r.SecondHalf.Bytes != 4096*r.SecondHalf.Requests {
		t.Errorf("%+v", r)
	}
}

func TestADurationLeavesOutWhatIsDueLater(t *testing.T) {
	o := prepared(t, &memnfs.Server{})
	trace := []traces.Request{{Size: 1, Read: true}, {At: ms, Size: 1, Read: true},
		{At: time.Hour, Size: 1, Read: true}}
	o.Duration = 500 * ms
	r := run(t, o, trace)
	if r.Whole.Requests != 2 {
		t.Errorf("%d requests came in the first half second", r.Whole.Requests)
	}
}

func TestErrorsOfTheServerAreCounted(t *testing.T) {
	o := prepared(t, &memnfs.Server{})
	o.Handle = append([]byte(nil), o.Handle...)
	o.Handle[15] = 99
	r, err := Run(context.Background(), o, traces.Listed(spread(10)))
	if err != nil || r.Errors["NFS status 70"] != 10 {
		t.Errorf("%v, %v", r.Errors, err)
	}
}

func TestALostServerIsOneSentence(t *testing.T) {
	server := &memnfs.Server{}
	var once sync.Once
	server.Hold = func(c sunrpc.Call) <-chan struct{} {
		if !isRead(c) {
			return nil
		}
		once.Do(func() { go server.Close() })
		return make(chan struct{})
	}
	o := prepared(t, server)
	_, err := Run(context.Background(), o, traces.Listed(spread(100_000)))
	must.Refuse(t, err, "was lost")
	_, err = Run(context.Background(), o, traces.Listed(spread(10)))
	must.Refuse(t, err, "cannot connect")
}

func TestItCanBeInterrupted(t *testing.T) {
	o := prepared(t, &memnfs.Server{})
	ctx, cancel := context.WithCancel(context.Background())
	o.Log = func(time.Duration, time.Duration, bool, int64) { cancel() }
	r, err := Run(ctx, o, traces.Listed(spread(1_000_000)))
	if err == nil || err.Error() != "interrupted" || r.Whole.Requests == 0 {
		t.Errorf("%v, %d requests", err, r.Whole.Requests)
	}
}

// silent returns a server that answers no read.
func silent() *memnfs.Server {
	return &memnfs.Server{Hold: func(c sunrpc.Call) <-chan struct{} {
		if isRead(c) {
			return make(chan struct{})
		}
		return nil
	}}
}

func TestAServerThatDoesNotAnswer(t *testing.T) {
	o := prepared(t, silent())
	o.Drain = 100 * ms
	r, err := Run(context.Background(), o, traces.Listed(spread(7)))
	if err == nil || !strings.Contains(err.Error(), "4 requests have no reply") || r.Errors["not answered"] != 4 {
		t.Errorf("%v, %v", err, r.Errors)
	}
}

func TestAStartThatIsPastIsRefused(t *testing.T) {
	o := prepared(t, &memnfs.Server{})
	o.Start = time.Now().Add(-time.Second)
	if r, err := Run(context.Background(), o, traces.Listed(spread(3))); err == nil ||
		!strings.Contains(err.Error(), "give a later one") || r.Whole.Requests != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	o.Start = time.Now().Add(100 * ms)
	if r := run(t, o, spread(3)); r.Started != float64(o.Start.UnixNano())/1e9 && r.Started < float64(o.Start.UnixNano()-1e6)/1e9 {
		t.Errorf("it started at %f, not at %v", r.Started, o.Start)
	}
}

func TestWhatIsNotAnsweredInTimeIsCounted(t *testing.T) {
	o := prepared(t, silent())
	o.Wait, o.SLO = time.Second, 40*ms // a loaded machine answers writes late
	r := run(t, o, spread(30))         // twenty of them reads
	if r.Whole.Requests != 30 || r.Whole.Unanswered.Count != 20 || *r.Whole.Misses < 20 ||
		r.SecondHalf.Unanswered.Count == 0 || r.Whole.Reads.P50 < 0.05 || r.Whole.Bytes != 10*4096 {
		t.Errorf("%+v", r)
	}
}

func TestAReplyThatComesInTheRoundInWhichWaitingEndsCountsOnce(t *testing.T) {
	loop, err := reactor.New()
	must.Succeed(t, err)
	defer loop.End()
	r := &request{Request: traces.Request{Size: 8, Read: true}, left: 1}
	e := &engine{loop: loop, pieces: map[uint32]piece{7: {r, 8}}, outstanding: 1, whole: newTally(),
		second: newTally(), line: newTimeline(), lag: newTimes(), result: Result{Errors: map[string]int64{}}}
	e.abandon()
	reply := sunrpc.AppendReply(nil, 7, sunrpc.Success)
	reply.Uint32(uint32(nfs3.ErrIO))
	e.reply(reply.Bytes[4:])
	got := e.report()
	if got.Whole.Requests != 1 || got.Whole.Unanswered.Count != 1 || len(got.Errors) != 0 || e.outstanding != 0 {
		t.Errorf("%+v, %d outstanding", got.Whole, e.outstanding)
	}
}

func TestTimelinesGetWider(t *testing.T) {
	line := newTimeline()
	for second := range mostBins {
		line.add(time.Duration(second)*time.Second, time.Duration(second), second%2 == 0)
	}
	if reported := line.report(); reported.Seconds != 1 || len(reported.Bins) != mostBins {
		t.Fatalf("%d bins of %g s", len(reported.Bins), reported.Seconds)
	}
	line.add(mostBins*time.Second, 1, false)
	reported := line.report()
	if reported.Seconds != 2 || len(reported.Bins) != mostBins/2+1 ||
		reported.Bins[3] != (Bin{Requests: 2, Misses: 1, Max: 7e-9}) {
		t.Errorf("%d bins of %g s, %+v", len(reported.Bins), reported.Seconds, reported.Bins[3])
	}
}
