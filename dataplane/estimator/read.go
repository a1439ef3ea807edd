package estimator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
)

// document is a profile's JSON. Unknown keys are ignored, as in the Python reader.
type document struct {
	Type           string              `json:"type"`
	BandwidthTable []map[string]any    `json:"bandwidthTable"`
	Base           *float64            `json:"base"`
	ReadBandwidth  *float64            `json:"readBandwidth"`
	WriteBandwidth *float64            `json:"writeBandwidth"`
	History        *int                `json:"history"`
	Read           *tableDocument      `json:"read"`
	Write          *tableDocument      `json:"write"`
	Network        map[string]*float64 `json:"network"`
	Overhead       map[string]*float64 `json:"overhead"`
}

type tableDocument struct {
	Offsets   []float64   `json:"offsets"`
	Distances []float64   `json:"distances"`
	Base      [][]float64 `json:"base"`
	Bandwidth [][]float64 `json:"bandwidth"`
}

// Load reads a profile; the error is one sentence.
func Load(path string) (*Profile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		var where *fs.PathError
		if errors.As(err, &where) {
			err = where.Err
		}
		return nil, fmt.Errorf("profile %s: cannot be read (%w)", path, err)
	}
	return Parse(text, "profile "+path)
}

// Parse reads a profile from JSON; each error begins with `where`.
func Parse(text []byte, where string) (*Profile, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("%s: is no profile: %w", where, err)
	}
	p := &Profile{Network: DefaultNetwork}
	var err error
	switch d.Type {
	case "storageSSD":
		p.device, err = bySize(d)
	case "storageConstant":
		p.device, err = constant(d)
	case "storageTable":
		p.device, err = byDistance(d)
	default:
		err = fmt.Errorf("type is %q; write one of storageSSD, storageConstant, storageTable", d.Type)
	}
	if err == nil {
		err = numbers("network", d.Network, map[string]*float64{"dataConstant": &p.Network.DataConstant,
			"dataFactor": &p.Network.DataFactor, "nonDataConstant": &p.Network.OtherConstant,
			"nonDataFactor": &p.Network.OtherFactor})
	}
	if err == nil {
		var latency float64 // used only by the planner
		err = numbers("overhead", d.Overhead, map[string]*float64{"request": &p.Overhead,
			"latency": &latency})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	return p, nil
}

// positive returns a number that must exist and be above 0.
func positive(v *float64, what string) (float64, error) {
	if v == nil || !(*v > 0) || math.IsInf(*v, 0) {
		return 0, fmt.Errorf("%s is missing or not a number above 0", what)
	}
	return *v, nil
}

func bySize(d document) (device, error) {
	if len(d.BandwidthTable) == 0 {
		return nil, fmt.Errorf("bandwidthTable is missing or empty; write a list")
	}
	rows := make([][3]float64, len(d.BandwidthTable))
	for i, row := range d.BandwidthTable {
		for k, key := range []string{"requestSize", "readBandwidth", "writeBandwidth"} {
			v, ok := row[key].(float64)
			if !ok || !(v > 0) {
				return nil, fmt.Errorf("bandwidthTable[%d].%s is missing or not a number above 0", i, key)
			}
			rows[i][k] = v
		}
	}
	sort.Slice(rows, func(a, b int) bool { return rows[a][0] < rows[b][0] })
	p := &sizeProfile{}
	for i, row := range rows {
		if i > 0 && row[0] == rows[i-1][0] {
			return nil, fmt.Errorf("bandwidthTable has requestSize %g twice", row[0])
		}
		p.sizes = append(p.sizes, row[0])
		p.read = append(p.read, row[1])
		p.write = append(p.write, row[2])
	}
	return p, nil
}

func constant(d document) (device, error) {
	if d.Base == nil || !(*d.Base >= 0) {
		return nil, fmt.Errorf("base is missing or not a number of at least 0")
	}
	read, err := positive(d.ReadBandwidth, "readBandwidth")
	if err != nil {
		return nil, err
	}
	write, err := positive(d.WriteBandwidth, "writeBandwidth")
	return &constantProfile{*d.Base, read, write}, err
}

func byDistance(d document) (device, error) {
	p := &distanceProfile{history: 8}
	if d.History != nil {
		p.history = *d.History
	}
	if p.history < 1 || p.history > 1024 {
		return nil, fmt.Errorf("history is %d; write a whole number from 1 to 1024", p.history)
	}
	for _, kind := range []struct {
		name string
		from *tableDocument
		to   *table
	}{{"read", d.Read, &p.read}, {"write", d.Write, &p.write}} {
		if kind.from == nil {
			return nil, fmt.Errorf("%s is missing; write an object with offsets and distances", kind.name)
		}
		*kind.to = table{kind.from.Offsets, kind.from.Distances, kind.from.Base, kind.from.Bandwidth}
		if err := kind.to.check(); err != nil {
			return nil, fmt.Errorf("%s.%w", kind.name, err)
		}
	}
	return p, nil
}

func (t *table) check() error {
	for _, axis := range []struct {
		name   string
		points []float64
	}{{"offsets", t.offsets}, {"distances", t.distances}} {
		if len(axis.points) == 0 {
			return fmt.Errorf("%s is missing or empty; write a list", axis.name)
		}
		for i := 1; i < len(axis.points); i++ {
			if axis.points[i] <= axis.points[i-1] {
				return fmt.Errorf("%s must rise from entry to entry", axis.name)
			}
		}
	}
	for _, grid := range []struct {
		name  string
		rows  [][]float64
		least float64
	}{{"base", t.base, 0}, {"bandwidth", t.bandwidth, math.SmallestNonzeroFloat64}} {
		fits := len(grid.rows) == len(t.offsets)
		for _, row := range grid.rows {
			fits = fits && len(row) == len(t.distances)
			for _, v := range row {
				fits = fits && v >= grid.least
			}
		}
		if !fits {
			return fmt.Errorf("%s must have a row for each of %d offsets, with a number of at least 0 "+
				"(bandwidth: above) for each of %d distances", grid.name, len(t.offsets), len(t.distances))
		}
	}
	return nil
}

// numbers reads an optional block into its known values.
func numbers(name string, block map[string]*float64, known map[string]*float64) error {
	for key, value := range block {
		to, ok := known[key]
		if !ok {
			return fmt.Errorf("%s has %q; known are %s", name, key,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if value == nil || !(*value >= 0) {
			return fmt.Errorf("%s.%s is not a number of at least 0", name, key)
		}
		*to = *value
	}
	return nil
}
