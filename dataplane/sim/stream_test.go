package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"sort"
	"testing"

	"hotbed/dataplane/tests/must"
)

// bitsOf hashes the bits of n draws.
func bitsOf(n int, draw func() uint64) string {
	hash := fnv.New64a()
	var word [8]byte
	for range n {
		v := draw()
		for i := range word {
			word[i] = byte(v >> (8 * i))
		}
		hash.Write(word[:])
	}
	return fmt.Sprintf("%016x", hash.Sum64())
}

func TestGoldenBits(t *testing.T) {
	float := math.Float64bits
	for _, c := range []struct {
		name, want string
		draw       func(s *Stream) uint64
	}{
		{"uint64", "2c13b53f8fd488a2", func(s *Stream) uint64 { return s.Uint64() }},
		{"intn", "ee3d654fdf309e6b", func(s *Stream) uint64 { return uint64(s.IntN(3<<61 + 1)) }},
		{"uniform", "5736473097d1c11f", func(s *Stream) uint64 { return float(s.Uniform()) }},
		{"exp", "1438a9c86a487770", func(s *Stream) uint64 { return float(s.Exp()) }},
		{"normal", "eabe77a97143a011", func(s *Stream) uint64 { return float(s.Normal()) }},
		{"ln", "8dfb9225c52e5a41", func(s *Stream) uint64 { return float(ln(s.Uniform() + 1e-300)) }},
		{"exponential", "8ed318b7fa5031cf", func(s *Stream) uint64 { return float(exp(1400*s.Uniform() - 700)) }},
	} {
		s := NewStream(42, c.name)
		if got := bitsOf(100000, func() uint64 { return c.draw(s) }); got != c.want {
			t.Errorf("%s: the bits changed: %s, they were %s", c.name, got, c.want)
		}
	}
}

// Replications differ by their seed. Two streams of one seed must not be related in a way that all
// seeds share, because means over replications would inherit it. The generator is linear, so states
// that differ by the same bits for every seed stay related forever.
func TestStreamsOfOneSeedAreUnrelatedOverSeeds(t *testing.T) {
	const seeds, draws = 10000, 50
	var products [draws]float64
	flips := map[uint64]int{}
	for seed := range uint64(seeds) {
		a, b := NewStream(seed, "think"), NewStream(seed, "service")
		flips[a.s[0]^b.s[0]]++
		for i := range products {
			products[i] += (a.Uniform() - 0.5) * (b.Uniform() - 0.5) * 12
		}
	}
	for i, p := range products {
		if r := p / seeds; math.Abs(r) > 4.5/math.Sqrt(seeds) {
			t.Errorf("draw %d of two streams: correlation %.3f over seeds", i, r)
		}
	}
	if len(flips) != seeds {
		t.Errorf("the states of two streams differ in %d ways over %d seeds", len(flips), seeds)
	}
}

func TestLogarithmAndExponential(t *testing.T) {
	// The error in units in the last place against math, which is itself within one unit.
	far := func(got, want float64) float64 {
		return math.Abs(got-want) / (math.Nextafter(math.Abs(want), math.Inf(1)) - math.Abs(want))
	}
	s := NewStream(1, "mathx")
	for range 200000 {
		x := math.Float64frombits(s.Uint64()>>12 | uint64(s.IntN(2046)+1)<<52)
		if e := far(ln(x), math.Log(x)); e > 3 {
			t.Fatalf("ln(%g) is %g units off", x, e)
		}
		near := 1 + (s.Uniform()-0.5)/16
		if e := far(ln(near), math.Log(near)); e > 3 {
			t.Fatalf("ln(%g) is %g units off", near, e)
		}
		y := 1400*s.Uniform() - 700
		if e := far(exp(y), math.Exp(y)); e > 3 {
			t.Fatalf("exp(%g) is %g units off", y, e)
		}
	}
	if ln(1) != 0 || exp(0) != 1 {
		t.Errorf("ln 1 = %g, exp 0 = %g", ln(1), exp(0))
	}
}

// kolmogorov returns the largest distance of the sample's distribution from cdf, times sqrt(n).
func kolmogorov(sample []float64, cdf func(float64) float64) float64 {
	sort.Float64s(sample)
	n, d := float64(len(sample)), 0.0
	for i, x := range sample {
		f := cdf(x)
		d = max(d, f-float64(i)/n, float64(i+1)/n-f)
	}
	return d * math.Sqrt(n)
}

func TestDrawsHaveTheirDistributions(t *testing.T) {
	const n = 300000
	for name, c := range map[string]struct {
		draw func(s *Stream) float64
		cdf  func(x float64) float64
	}{
		"uniform": {(*Stream).Uniform, func(x float64) float64 { return x }},
		"exp":     {(*Stream).Exp, func(x float64) float64 { return 1 - math.Exp(-x) }},
		"normal":  {(*Stream).Normal, func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }},
		// Tests only draws of the tail's own code.
		"exp tail": {func(s *Stream) float64 {
			for {
				if x := s.Exp(); x > 5 {
					return x - 5
				}
			}
		}, func(x float64) float64 { return 1 - math.Exp(-x) }},
		"normal tail": {(*Stream).normalTail, func(x float64) float64 {
			return 1 - math.Erfc(x/math.Sqrt2)/math.Erfc(normalTail/math.Sqrt2)
		}},
	} {
		count := n
		if name == "exp tail" {
			count = n / 100 // one draw in 148 is in the tail
		}
		s, sample := NewStream(7, name), make([]float64, count)
		for i := range sample {
			sample[i] = c.draw(s)
		}
		if d := kolmogorov(sample, c.cdf); d > 1.95 { // 1 in 1000
			t.Errorf("%s: Kolmogorov-Smirnov distance %.2f", name, d)
		}
	}
}

func TestLogNormalFactors(t *testing.T) {
	for _, cv := range []float64{0, 0.1, 1, 2} {
		l, err := NewLogNormal(cv)
		must.Succeed(t, err)
		s := NewStream(1, "test")
		const n = 400_000
		sum, squares := 0.0, 0.0
		for range n {
			x := l.Factor(s)
			if !(x > 0) {
				t.Fatalf("a factor of %g", x)
			}
			sum += x
			squares += x * x
		}
		mean := sum / n
		deviation := math.Sqrt(squares/n - mean*mean)
		if math.Abs(mean-1) > 0.01 || math.Abs(deviation-cv) > 0.06*cv {
			t.Errorf("cv %g: mean %g, deviation %g", cv, mean, deviation)
		}
	}
	for _, cv := range []float64{-1, 11, math.NaN()} {
		if _, err := NewLogNormal(cv); err == nil {
			t.Errorf("cv %g was allowed", cv)
		}
	}
}
