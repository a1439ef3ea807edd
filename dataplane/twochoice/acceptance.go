package twochoice

import (
	"encoding/json"
	"fmt"
	"math"
)

// maxBins bounds the loads that are told apart; larger ones share the last.
const maxBins = 4096

// fading is after how many probes of one load the older half of them counts half, so that P(load)
// follows a cluster that changes.
const fading = 1 << 14

// Acceptance is P(load) of section III.C: how likely a server that told a load is chosen. Each value
// of the load, in steps of a unit, has a probability of its own: of those that a probe told it to,
// the share that chose it, and the prior for as many more as its weight. It learns until it is
// frozen. One may belong to one server, as in the paper, or to many that are alike.
type Acceptance struct {
	unit, prior, weight float64
	frozen              bool
	told, chosen        []uint32
}

// NewAcceptance returns one that has learned nothing.
func NewAcceptance(p PreassignParameters) *Acceptance {
	return &Acceptance{unit: p.Unit, prior: p.Prior, weight: p.Weight}
}

// Freeze stops learning, or lets it go on.
func (a *Acceptance) Freeze(frozen bool) { a.frozen = frozen }

// Frozen says whether it learns no more.
func (a *Acceptance) Frozen() bool { return a.frozen }

// bin is the value that a load counts as.
func (a *Acceptance) bin(load float64) int {
	step := load / a.unit
	if !(step > 0) {
		return 0
	}
	return int(math.Min(step, maxBins-1))
}

// P is the probability of being chosen at a load.
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

// learn takes in whether one that was told the load of a bin chose it.
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

// AcceptancePoint is one value of the curve.
type AcceptancePoint struct {
	Load   float64 `json:"load"`   // least load of the value
	Told   uint32  `json:"told"`   // probes that it was told to
	Chosen uint32  `json:"chosen"` // of these
	P      float64 `json:"p"`
}

// Curve is what was learned: a point for each load that was ever told.
func (a *Acceptance) Curve() []AcceptancePoint {
	var out []AcceptancePoint
	for bin, told := range a.told {
		if told > 0 {
			out = append(out, AcceptancePoint{float64(float64(bin) * a.unit), told, a.chosen[bin], a.at(bin)})
		}
	}
	return out
}

// Clone is a copy that learns for itself.
func (a *Acceptance) Clone() *Acceptance {
	out := *a
	out.told = append([]uint32(nil), a.told...)
	out.chosen = append([]uint32(nil), a.chosen...)
	return &out
}

// acceptanceFile is how it is kept in JSON.
type acceptanceFile struct {
	Version int      `json:"version"`
	Unit    float64  `json:"unit"`
	Prior   float64  `json:"prior"`
	Weight  float64  `json:"weight"`
	Frozen  bool     `json:"frozen"`
	Told    []uint32 `json:"told"`
	Chosen  []uint32 `json:"chosen"`
}

// MarshalJSON writes all that was learned.
func (a *Acceptance) MarshalJSON() ([]byte, error) {
	return json.Marshal(acceptanceFile{1, a.unit, a.prior, a.weight, a.frozen, a.told, a.chosen})
}

// UnmarshalJSON reads it again; the error is one sentence, and nothing has changed then.
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
