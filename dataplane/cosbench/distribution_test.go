package cosbench

import (
	"math/rand/v2"
	"testing"

	"hotbed/dataplane/tests/must"
)

// TestShare checks that the workers' shares partition the range and differ by at most one number.
func TestShare(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		lower := 1 + random.Int64N(1000)
		upper := lower - 1 + random.Int64N(300)
		workers := 1 + random.IntN(40)
		next := lower
		shortest := (upper - lower + 1) / int64(workers)
		for w := 1; w <= workers; w++ {
			start, length := Share(lower, upper, w, workers)
			if start != next || length < shortest || length > shortest+1 {
				t.Fatalf("%d-%d among %d: worker %d has %d from %d, not from %d", lower, upper, workers, w, length, start, next)
			}
			next += length
		}
		if next != upper+1 {
			t.Fatalf("%d-%d among %d ends at %d", lower, upper, workers, next-1)
		}
	}
}

func distribution(t testing.TB, text string, workers int) *Distribution {
	t.Helper()
	d, err := ParseDistribution(text, workers)
	must.Succeed(t, err)
	return d
}

func TestDraws(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	draw := func(text string, n, worker, workers int) []int64 {
		d := distribution(t, text, workers)
		drawn := make([]int64, n)
		for i := range drawn {
			drawn[i] = d.Draw(random, worker, workers)
		}
		return drawn
	}
	for _, c := range []struct {
		text            string
		worker, workers int
		want            [6]int64
	}{
		{"c(7)", 1, 1, [6]int64{7, 7, 7, 7, 7, 7}},
		{"c(7)", 2, 3, [6]int64{7, 7, 7, 7, 7, 7}},
		{"r(3,5)", 1, 1, [6]int64{3, 4, 5, 3, 4, 5}},
		{"3-5", 1, 1, [6]int64{3, 4, 5, 3, 4, 5}},
		{"r(1,5)", 1, 2, [6]int64{1, 2, 3, 1, 2, 3}},
		{"r(1,5)", 2, 2, [6]int64{4, 5, 4, 5, 4, 5}},
		{"s(3,5)", 2, 2, [6]int64{3, 4, 5, 3, 4, 5}}, // never divided
	} {
		if got := [6]int64(draw(c.text, 6, c.worker, c.workers)); got != c.want {
			t.Errorf("%s for %d of %d: %v, not %v", c.text, c.worker, c.workers, got, c.want)
		}
	}
	// Uniform: every number of the worker's share occurs, and no other.
	seen := map[int64]int{}
	for _, v := range draw("u(11,20)", 2000, 2, 3) { // 11-14, 15-17, 18-20
		seen[v]++
	}
	if len(seen) != 3 || seen[15] < 500 || seen[16] < 500 || seen[17] < 500 {
		t.Errorf("the middle third of u(11,20): %v", seen)
	}
	// Histogram: weights 70 and 30, uniform inside.
	inFirst := 0
	for _, v := range draw("h(1|64|70,65|128|30)", 20_000, 1, 1) {
		if v <= 64 {
			inFirst++
		}
	}
	if inFirst < 13_700 || inFirst > 14_300 { // 4.6 sigma, and the seed is fixed
		t.Errorf("%d of 20000 in the bucket of weight 70", inFirst)
	}
	if d := distribution(t, "u(5)", 1); d.lower != 5 || d.upper != 1<<31-1 {
		t.Errorf("u(5) is %d to %d", d.lower, d.upper)
	}
	if d := distribution(t, "h(10|20|1,5||2)", 1); d.lower != 5 || d.upper != 1<<31-1 {
		t.Errorf("h(10|20|1,5||2) is %d to %d", d.lower, d.upper)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"c(0)B": 0, "c(64)KB": 64_000, "c(3)MB": 3_000_000, "c(2)GB": 2_000_000_000, "c(12)B": 12} {
		s, err := ParseSizes(text, 1)
		if err != nil || s.Draw(nil) != want {
			t.Errorf("%s: %v %v", text, s, err)
		}
	}
}

func TestRanges(t *testing.T) {
	for text, want := range map[string][2]int64{"r(1,4)": {1, 4}, "2-9": {2, 9}, "r(0,0)": {1, 0}, "0-0": {1, 0}} {
		if got, err := ParseRange(text); err != nil || [2]int64{got.lower, got.upper} != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "u(1,2)", "r(2,1)", "r(0,1)", "r(1)", "1-", "s(1,2)"} {
		if got, err := ParseRange(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}
