package estimator

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"hotbed/dataplane/tests/must"
)

// golden holds the Python estimators' results for random requests;
// tests/controllers/prioritymeister/test_go_estimator.py checks the file against the Python code.
type golden struct {
	Profile  json.RawMessage `json:"profile"`
	Requests []struct {
		Read         bool
		Offset, Size int64
	} `json:"requests"`
	Work       []float64 `json:"work"`
	NetworkIn  []float64 `json:"network_in"`
	NetworkOut []float64 `json:"network_out"`
}

func TestTheSameNumbersAsPython(t *testing.T) {
	text := must.Read(t, "testdata/golden.json")
	var cases []golden
	must.Succeed(t, json.Unmarshal(text, &cases))
	if len(cases) < 3 {
		t.Fatalf("%d profiles, want one of each type", len(cases))
	}
	for i, c := range cases {
		p, err := Parse(c.Profile, "profile")
		must.Succeed(t, err)
		e := p.Estimator()
		for k, r := range c.Requests {
			for _, pair := range [][2]float64{{e.Work(r.Read, r.Offset, r.Size), c.Work[k]},
				{p.Network.In(r.Read, r.Size), c.NetworkIn[k]},
				{p.Network.Out(r.Read, r.Size), c.NetworkOut[k]}} {
				if math.Abs(pair[0]-pair[1]) > 1e-13*pair[1] {
					t.Fatalf("profile %d, request %d (%+v): %v, Python has %v", i, k, r, pair[0], pair[1])
				}
			}
		}
	}
}

func TestBadProfilesGetASentence(t *testing.T) {
	const size = `{"type": "storageSSD", "bandwidthTable": `
	const table = `{"type": "storageTable", "read": `
	const good = `{"offsets": [0], "distances": [1], "base": [[0]], "bandwidth": [[1]]}`
	for text, want := range map[string]string{
		`x`:                            "is no profile",
		`{}`:                           `type is ""`,
		size + `[]}`:                   "bandwidthTable is missing",
		size + `[{"requestSize": 1}]}`: "readBandwidth",
		size + `[{"requestSize": 1, "readBandwidth": 1, "writeBandwidth": 1},
			{"requestSize": 1, "readBandwidth": 1, "writeBandwidth": 1}]}`: "twice",
		`{"type": "storageConstant", "base": -1}`:                                         "base",
		`{"type": "storageConstant", "base": 1, "readBandwidth": 1, "writeBandwidth": 0}`: "writeBandwidth",
		table + good + `}`: "write is missing",
		table + good + `, "history": 0, "write": ` + good + `}`:                 "history is 0",
		table + `{"offsets": [], "distances": [1]}, "write": ` + good + `}`:     "read.offsets is missing",
		table + `{"offsets": [1, 1], "distances": [1]}, "write": ` + good + `}`: "read.offsets must rise",
		table + `{"offsets": [1], "distances": [1], "base": [[0]], "bandwidth": [[0]]}, "write": ` +
			good + `}`: "read.bandwidth must have",
		`{"type": "storageConstant", "base": 1, "readBandwidth": 1, "writeBandwidth": 1,
			"network": {"x": 1}}`: `network has "x"; known are dataConstant, dataFactor, nonDataConstant, nonDataFactor`,
		`{"type": "storageConstant", "base": 1, "readBandwidth": 1, "writeBandwidth": 1,
			"overhead": {"request": -1}}`: "overhead.request is not a number of at least 0",
	} {
		_, err := Parse([]byte(text), "profile p")
		if err == nil || !strings.HasPrefix(err.Error(), "profile p: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want a sentence with %q", text, err, want)
		}
	}
	_, err := Load("testdata/none.json")
	must.Refuse(t, err, "cannot be read")
}
