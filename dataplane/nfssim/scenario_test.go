package nfssim

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hotbed/dataplane/enforcer"
	"hotbed/dataplane/internal/traces"
	"hotbed/dataplane/tests/must"
)

func TestWhatIsWrongIsSaidInASentence(t *testing.T) {
	for want, change := range map[string]func(s *Scenario){
		"has schema 9":                       func(s *Scenario) { s.Schema = 9 },
		"duration is":                        func(s *Scenario) { s.Duration = -1 },
		"frame is 3":                         func(s *Scenario) { s.Frame = 3 },
		"series is":                          func(s *Scenario) { s.Series = -1 },
		"no device or no workload":           func(s *Scenario) { s.Workloads = nil },
		"device s:d: charged: there is no":   func(s *Scenario) { s.Devices[0].Charged.Profile = "x" },
		"service: speed is 0":                func(s *Scenario) { s.Devices[0].Service.Speed = 0 },
		"noise is -1":                        func(s *Scenario) { s.Devices[0].Service.Noise = -1 },
		"link w->x: rate is 0":               func(s *Scenario) { s.Links[0].Rate = 0 },
		"two links are called w->x":          func(s *Scenario) { s.Links = append(s.Links, s.Links[0]) },
		"two devices are called":             func(s *Scenario) { s.Devices = append(s.Devices, s.Devices[0]) },
		"closed is -1":                       func(s *Scenario) { s.Workloads[0].Closed = -1 },
		"only with a duration":               func(s *Scenario) { s.Workloads[0].Closed, s.Workloads[0].Repeat = 1, true },
		"slo is -1":                          func(s *Scenario) { s.Workloads[0].SLO = -1 },
		`workload w: there is no profile`:    func(s *Scenario) { s.Workloads[0].Network = "x" },
		`there is no link "x"`:               func(s *Scenario) { s.Workloads[0].In[0] = "x" },
		`has no workload "w/in"`:             func(s *Scenario) { s.Workloads[0].In[0] = "s->x" },
		`there is no device "x"`:             func(s *Scenario) { s.Workloads[0].Device = "x" },
		"has no workload of this name":       func(s *Scenario) { s.Devices[0].Parameters.Workloads[0].Name = "v" },
		`device s:d: policy is "x"`:          func(s *Scenario) { s.Devices[0].Parameters.Policy = "x" },
		`link w->x: policy is "x"`:           func(s *Scenario) { s.Links[0].Parameters.Policy = "x" },
		`profile "p": type is ""`:            func(s *Scenario) { s.Profiles["p"] = json.RawMessage(`{}`) },
		"trace no/such: cannot be read (no ": func(s *Scenario) { s.Workloads[0].Trace = "no/such" },
	} {
		s := connected(one(enforcer.PM, "w"), 125e6, enforcer.PM)
		change(&s)
		_, err := Run(s, FromFile, func(float64) {})
		must.Refuse(t, err, want)
	}
	for text, want := range map[string]string{"{": "cannot be read", `{"x": 1}`: "unknown field",
		`{"schema": 1}`: "no device"} {
		_, err := ParseScenario([]byte(text))
		must.Refuse(t, err, want)
	}
}

func TestMalformedRowsAreCountedAlsoInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.csv")
	rows := "5000000000,1,DiskRead\n6000000000,2,DiskRead\n6500000000,4,DiskRead\nx\n7000000000,8,DiskRead\n"
	must.Succeed(t, os.WriteFile(path, []byte(rows), 0o644))
	s := one(enforcer.None, "w")
	s.Workloads[0].Trace = path
	for _, s.Preload = range []bool{false, true} {
		r, err := Run(s, FromFile, func(float64) {})
		must.Succeed(t, err)
		if w := r.Workloads[0]; w.Whole.Bytes != 15 || w.LastSent != 2 || w.Malformed != 1 || !strings.Contains(w.FirstBad, "line 4") {
			t.Errorf("preload %v: %+v", s.Preload, w)
		}
	}
}

func TestATraceThatBreaksWhileItIsReplayedIsAnError(t *testing.T) {
	path := must.Write(t, "t.csv", "1,1,DiskRead\n2,1,DiskRead\n")
	s := one(enforcer.None, "w")
	s.Workloads[0].Trace = path
	trace, err := FromFile(s.Workloads[0])
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(path, []byte("1,1,DiskRead\n"), 0o644))
	same := func(Workload) (traces.Trace, error) { return trace, nil }
	_, err = Run(s, same, func(float64) {})
	must.Refuse(t, err, "was changed")
}
