package sim

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Stream is a stream of random numbers: xoshiro256++ (Blackman and Vigna, 2021), seeded from a
// number and a name. Streams of different names are independent, so draws in one part of a model do
// not affect another part. The same seed and name give the same bits on every machine and, by the
// golden tests, in every version.
//
// A product of drawn numbers that is added to something needs an explicit conversion, float64(x*y)
// + z. Otherwise some machines fuse the two operations and round differently.
//
// A Stream is a plain value of 32 bytes; a copy keeps its position.
type Stream struct{ s [4]uint64 }

// NewStream returns the stream of a seed and a name.
func NewStream(seed uint64, name string) *Stream {
	s := StreamOf(seed, name, 0)
	return &s
}

// StreamOf returns the stream of a seed, a name and a number (for example of a client), as a value.
func StreamOf(seed uint64, name string, number uint64) Stream {
	hash := uint64(14695981039346656037) // FNV-1a
	for i := range len(name) {
		hash = (hash ^ uint64(name[i])) * 1099511628211
	}
	// Each step mixes the previous result. The generator is linear, so streams with seeds, names or
	// numbers that differ by the same bits must not have states that differ likewise.
	key := splitMix(&seed)
	key = mix(key ^ hash)
	key = mix(key + number)
	var s Stream
	for i := range s.s {
		s.s[i] = splitMix(&key)
	}
	if s.s == [4]uint64{} {
		s.s[0] = 1 // the all-zero state would never change
	}
	return s
}

// splitMix is the generator of that name (Steele, Lea and Flood, 2014), which xoshiro's authors use
// for seeding.
func splitMix(x *uint64) uint64 {
	*x += 0x9e3779b97f4a7c15
	return mix(*x)
}

// mix is a bijection that spreads every bit over all others.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Uint64 returns a uniform number over all values.
func (s *Stream) Uint64() uint64 {
	a, b, c, d := s.s[0], s.s[1], s.s[2], s.s[3]
	out := bits.RotateLeft64(a+d, 23) + a
	t := b << 17
	c ^= a
	d ^= b
	b ^= c
	a ^= d
	c ^= t
	s.s = [4]uint64{a, b, c, bits.RotateLeft64(d, 45)}
	return out
}

// IntN returns a uniform number in 0 <= i < n; n must be positive.
func (s *Stream) IntN(n int64) int64 {
	if n <= 0 {
		panic(fmt.Sprintf("sim: IntN of %d", n))
	}
	// Multiply and shift. The low word detects the few draws that would make some results more
	// likely than others.
	high, low := bits.Mul64(s.Uint64(), uint64(n))
	if low < uint64(n) {
		for least := -uint64(n) % uint64(n); low < least; {
			high, low = bits.Mul64(s.Uint64(), uint64(n))
		}
	}
	return int64(high)
}

// Uniform returns a uniform number in 0 <= x < 1, in steps of 2^-53.
func (s *Stream) Uniform() float64 { return unit(s.Uint64()) }

// unit maps the upper 53 bits to 0 <= x < 1.
func unit(u uint64) float64 { return float64(float64(u>>11) * 0x1p-53) }

// Bernoulli returns true with probability p.
func (s *Stream) Bernoulli(p float64) bool { return s.Uniform() < p }

// The ziggurat (Marsaglia and Tsang, 2000) covers a decreasing density with 256 layers of equal
// area. A point in a layer's inner part is under the curve without a check. edge[i] is the width of
// layer i, height[i] the density there; the lowest layer, 0, holds the tail beyond edge[1].
const layers = 256

type ziggurat struct{ edge, height [layers + 1]float64 }

// newZiggurat builds layers of area `area` with a tail starting at `tail`, for a density and its
// inverse.
func newZiggurat(tail, area float64, density, inverse func(float64) float64) *ziggurat {
	z := &ziggurat{}
	z.edge[0] = area / density(tail)
	z.edge[1] = tail
	for i := 2; i < layers; i++ {
		z.edge[i] = inverse(area/z.edge[i-1] + density(z.edge[i-1]))
	}
	for i := range z.height {
		z.height[i] = density(z.edge[i])
	}
	return z
}

const (
	expTail, expArea       = 7.69711747013104972, 0.0039496598225815571993
	normalTail, normalArea = 3.6541528853610088, 0.004928673233974658
)

var (
	expLayers = newZiggurat(expTail, expArea,
		func(x float64) float64 { return exp(-x) },
		func(y float64) float64 { return -ln(y) })
	normalLayers = newZiggurat(normalTail, normalArea,
		func(x float64) float64 { return exp(-0.5 * x * x) },
		func(y float64) float64 { return math.Sqrt(-2 * ln(y)) })
)

// Exp returns an exponential number with mean 1.
func (s *Stream) Exp() float64 {
	shift := 0.0
	for {
		u := s.Uint64()
		i := u & (layers - 1)
		x := float64(unit(u) * expLayers.edge[i])
		if x < expLayers.edge[i+1] {
			return shift + x
		}
		if i == 0 { // the tail of an exponential is exponential again
			shift += expTail
			continue
		}
		between := expLayers.height[i+1] - expLayers.height[i]
		if expLayers.height[i]+float64(s.Uniform()*between) < exp(-x) {
			return shift + x
		}
	}
}

// Normal returns a normal number with mean 0 and standard deviation 1.
func (s *Stream) Normal() float64 {
	for {
		u := s.Uint64()
		i := u & (layers - 1)
		x := float64(unit(u) * normalLayers.edge[i])
		negative := u&layers != 0 // a bit that neither the layer nor x uses
		if x >= normalLayers.edge[i+1] {
			if i == 0 {
				x = s.normalTail()
			} else {
				between := normalLayers.height[i+1] - normalLayers.height[i]
				if normalLayers.height[i]+float64(s.Uniform()*between) >= exp(-0.5*x*x) {
					continue
				}
			}
		}
		if negative {
			return -x
		}
		return x
	}
}

// normalTail returns a normal number from beyond the lowest layer (Marsaglia, 1964).
func (s *Stream) normalTail() float64 {
	for {
		x := -ln(1-s.Uniform()) / normalTail
		y := -ln(1 - s.Uniform())
		if y+y >= float64(x*x) {
			return normalTail + x
		}
	}
}

// Seconds rounds a time in seconds to a Duration; a time that does not fit becomes Forever.
func Seconds(x float64) time.Duration { return nanoseconds(x * 1e9) }

func nanoseconds(x float64) time.Duration {
	if !(x < math.MaxInt64) {
		return Forever
	}
	return time.Duration(math.Round(x))
}

// The logarithm and the exponential below use only additions, multiplications, divisions and
// scaling by powers of two, each rounded separately. Explicit conversions keep a compiler from
// fusing a product into a sum. IEEE 754 defines all these operations, so the bits are equal on all
// machines. The standard library's are not (some machines use assembly). Both are within 2 units in
// the last place, as tests check.

const (
	ln2High = 6.93147180369123816490e-01 // the upper 33 bits of ln 2: exact times any exponent
	ln2Low  = 1.90821492927058770002e-10
)

// atanhTerms holds 1/(2k+1) for k = 1 to 10, and expTerms 1/k! for k = 13 down to 2.
var (
	atanhTerms = [...]float64{1. / 3, 1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13, 1. / 15, 1. / 17,
		1. / 19, 1. / 21}
	expTerms = [...]float64{1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800,
		1. / 362880, 1. / 40320, 1. / 5040, 1. / 720, 1. / 120, 1. / 24, 1. / 6, 1. / 2}
)

// ln returns the natural logarithm of a positive, finite x: with x = m * 2^e and m near 1, ln m = 2
// atanh s, s = (m-1)/(m+1), |s| < 0.172.
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	s := (m - 1) / (m + 1)
	square := s * s
	sum := 0.0
	for i := len(atanhTerms) - 1; i >= 0; i-- {
		sum = atanhTerms[i] + float64(square*sum)
	}
	// s^3 * sum is small against s, and both against a multiple of ln 2: add the smallest first.
	tail := float64(float64(2*s) * float64(square*sum))
	return float64(float64(e)*ln2High) + (float64(2*s) + (tail + float64(float64(e)*ln2Low)))
}

// exp returns e to the x, for -700 <= x <= 700.
func exp(x float64) float64 {
	n := math.Floor(float64(x/math.Ln2) + 0.5)
	r := (x - float64(n*ln2High)) - float64(n*ln2Low)
	sum := 0.0
	for _, term := range expTerms {
		sum = term + float64(r*sum)
	}
	return math.Ldexp(1+(r+float64(float64(r*r)*sum)), int(n))
}

// LogNormal is a positive random factor of mean 1, to vary service times.
type LogNormal struct{ mean, deviation float64 } // of its logarithm

// NewLogNormal returns a factor with a coefficient of variation of 0 to 10; 0 is always 1.
func NewLogNormal(cv float64) (LogNormal, error) {
	if !(cv >= 0 && cv <= 10) {
		return LogNormal{}, fmt.Errorf(
			"a lognormal factor with coefficient of variation %g: allowed is 0 to 10", cv)
	}
	variance := ln(1 + float64(cv*cv))
	return LogNormal{mean: -variance / 2, deviation: math.Sqrt(variance)}, nil
}

// Factor returns the next value from a stream.
func (l LogNormal) Factor(s *Stream) float64 {
	if l.deviation == 0 {
		return 1
	}
	return exp(l.mean + float64(l.deviation*s.Normal()))
}
