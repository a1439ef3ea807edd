package twochoice

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPrequalGoesByTheHotColdRule(t *testing.T) {
	p := Simulated(Prequal)
	s := &prequal{base: base{p: p, servers: Numbered(20), random: rand.NewPCG(1, 1)}}
	hear := func(now time.Duration, server Server, inFlight int32, latency time.Duration) {
		s.Heard(now, []Reading{{Server: server, Answered: true, InFlight: inFlight, Latency: latency}})
	}
	placeOne := func(now time.Duration) Server {
		out, err := s.Place(now, []Write{{0, 1 << 20}}, nil, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Server
	}
	if got := placeOne(0); got != 0 || s.Stats().Blind != 1 {
		t.Fatalf("with an empty pool a write goes to %d", got)
	}
	// Quantile 0.84 of 1, 1, 2, 9: 9 is not above itself, so all are cold and the fastest wins.
	hear(0, 1, 1, 5*time.Millisecond)
	hear(0, 2, 1, 3*time.Millisecond)
	hear(0, 3, 2, 4*time.Millisecond)
	hear(0, 4, 9, time.Millisecond)
	s.p.Prequal.Quantile = 0.5 // of the four: above 2 is hot
	if got := placeOne(0); got != 2 {
		t.Fatalf("of the cold the write goes to %d, and 2 is quickest", got)
	}
	// The oldest answer (of 1) was forgotten; 2 counts one more operation in flight.
	if len(s.pool) != 3 || s.pool[0].reading.Server != 2 || s.pool[0].reading.InFlight != 2 {
		t.Fatalf("the pool is %v", s.pool)
	}
	if got := placeOne(0); got != 2 {
		t.Fatalf("then the write goes to %d", got)
	}
	// The worst was forgotten: 4 is hot and has the most in flight.
	if len(s.pool) != 2 || slices.ContainsFunc(s.pool, func(p pooled) bool { return p.reading.Server == 4 }) {
		t.Fatalf("the pool is %v", s.pool)
	}
	// All answers are too old.
	if got := placeOne(2 * time.Second); got != 0 || len(s.pool) != 0 {
		t.Fatalf("by answers of two seconds ago the write goes to %d", got)
	}
	for i := range 30 {
		hear(3*time.Second, Server(i%20), int32(i), 0)
	}
	if len(s.pool) != p.Prequal.Pool {
		t.Fatalf("the pool has %d answers", len(s.pool))
	}
}
