package twochoice

import (
	"encoding/json"
	"fmt"
	"math"
)

// maxBins bounds the number of load bins; larger loads share the last bin.
const maxBins = 4096

// fading is the number of probes of one load after which its older half counts half. P(load) thus
// follows a cluster that changes.
const fading = 1 << 14

// Acceptance is P(load) of section III.C: the probability that a server that reported a load is
// chosen. Each load bin (a multiple of the unit) has its own probability: the share of probes
// answered with this load that chose the server, smoothed by the weighted prior. It learns until it
// is frozen. One Acceptance serves one server, as in the paper, or many similar servers.
type Acceptance struct {
	unit, prior, weight float64
	frozen              bool
	told, chosen        []uint32
}

// NewAcceptance returns an Acceptance that has learned nothing.
func NewAcceptance(p PreassignParameters) *Acceptance {
	return &Acceptance{unit: p.Unit, prior: p.Prior, weight: p.Weight}
}

// Freeze stops learning, or resumes it.
func (a *Acceptance) Freeze(frozen bool) { a.frozen = frozen }

// Frozen reports whether learning is stopped.
func (a *Acceptance) Frozen() bool { return a.frozen }

// bin returns the bin of a load.
func (a *Acceptance) bin(load float64) int {
	step := load / a.unit
	if !(step > 0) {
		return 0
	}
	return int(math.Min(step, maxBins-1))
}

// P returns the probability of being chosen at a load.
func (a *Acceptance) P(load float64) float64 { return a.at(a.bin(load)) }

func (a *Acceptance) at(bin int) float64 {
	told, chosen := 0.0, 0.0
	if bin < len(a.told) {
		told, chosen = float64(a.told[bin]), float64(a.chosen[bin])
	}
	if told+a.weight == 0 {
		return a.prior
	}
	return (chosen + float64(a.prior*a.weight)) / (told + a.weight)
}

// learn records whether a probe that was answered with the load of a bin chose the server.
func (a *Acceptance) learn(bin int, chosen bool) {
	if a.frozen {
		return
	}
	for bin >= len(a.told) {
		a.told, a.chosen = append(a.told, 0), append(a.chosen, 0)
	}
	a.told[bin]++
	if chosen {
		a.chosen[bin]++
	}
	if a.told[bin] >= fading {
		a.told[bin] /= 2
		a.chosen[bin] /= 2
	}
}

// AcceptancePoint is one point of the learned curve.
type AcceptancePoint struct {
	Load   float64 `json:"load"`   // lower bound of the bin
	Told   uint32  `json:"told"`   // probes answered with this load
	Chosen uint32  `json:"chosen"` // probes that chose the server
	P      float64 `json:"p"`
}

// Curve returns the learned points, one for each load that was ever reported.
func (a *Acceptance) Curve() []AcceptancePoint {
	var out []AcceptancePoint
	for bin, told := range a.told {
		if told > 0 {
			out = append(out, AcceptancePoint{float64(float64(bin) * a.unit), told, a.chosen[bin], a.at(bin)})
		}
	}
	return out
}

// Clone returns an independent copy.
func (a *Acceptance) Clone() *Acceptance {
	out := *a
	out.told = append([]uint32(nil), a.told...)
	out.chosen = append([]uint32(nil), a.chosen...)
	return &out
}

// acceptanceFile is the JSON form of an Acceptance.
type acceptanceFile struct {
	Version int      `json:"version"`
	Unit    float64  `json:"unit"`
	Prior   float64  `json:"prior"`
	Weight  float64  `json:"weight"`
	Frozen  bool     `json:"frozen"`
	Told    []uint32 `json:"told"`
	Chosen  []uint32 `json:"chosen"`
}

// MarshalJSON writes the whole learned state.
func (a *Acceptance) MarshalJSON() ([]byte, error) {
	return json.Marshal(acceptanceFile{1, a.unit, a.prior, a.weight, a.frozen, a.told, a.chosen})
}

// UnmarshalJSON reads the learned state. On an error the receiver is unchanged.
func (a *Acceptance) UnmarshalJSON(text []byte) error {
	var f acceptanceFile
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("P(load) cannot be read: %w", err)
	}
	bad := f.Version != 1 || !(f.Unit > 0) || !(f.Prior >= 0 && f.Prior <= 1) || !(f.Weight >= 0) ||
		len(f.Told) != len(f.Chosen) || len(f.Told) > maxBins
	for i := range min(len(f.Told), len(f.Chosen)) {
		bad = bad || f.Chosen[i] > f.Told[i]
	}
	if bad {
		return fmt.Errorf("P(load) cannot be read: it is of version %d, and wanted is version 1 with a "+
			"unit above 0, a prior of 0 to 1 and no load chosen more often than told; learn it anew",
			f.Version)
	}
	*a = Acceptance{f.Unit, f.Prior, f.Weight, f.Frozen, f.Told, f.Chosen}
	return nil
}
