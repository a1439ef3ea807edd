package nfsproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"hotbed/dataplane/tests/memnfs"
	"hotbed/dataplane/tests/must"
)

func TestMetricsAreInPrometheusFormat(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 2}`)
	r.works(2)
	_, page := r.ask("GET", "/metrics", "")
	line := regexp.MustCompile(`^hotbed_nfsproxy_[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+$`)
	typed := map[string]bool{}
	for _, text := range strings.Split(strings.TrimSpace(page), "\n") {
		if strings.HasPrefix(text, "# TYPE ") {
			typed[strings.Fields(text)[2]] = true
		} else if !strings.HasPrefix(text, "# HELP ") && !line.MatchString(text) {
			t.Errorf("a line is %q", text)
		} else if !strings.HasPrefix(text, "#") {
			name := regexp.MustCompile(`^[a-z_]+`).FindString(text)
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if !typed[name] && !typed[base] {
				t.Errorf("%s has no type", name)
			}
		}
	}
	for _, want := range []string{
		`hotbed_nfsproxy_requests_total{workload="a",kind="read"} 1`,
		`hotbed_nfsproxy_requests_total{workload="a",kind="write"} 1`,
		`hotbed_nfsproxy_bytes_total{workload="a",kind="write"} 7`,
		`hotbed_nfsproxy_response_seconds_count{workload="a"} 3`,
		`hotbed_nfsproxy_info{policy="pm",mode="hold",depth="2"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("there is no line %s", want)
		}
	}
	answer, err := http.Get("http://" + r.control.listeners[1].Addr().String() + "/metrics")
	must.Succeed(t, err)
	defer func() { _ = answer.Body.Close() }()
	if text, _ := io.ReadAll(answer.Body); !strings.Contains(string(text), "hotbed_nfsproxy_clients") {
		t.Errorf("at the address for metrics: %s", text)
	}
	if other, err := http.Get("http://" + r.control.listeners[1].Addr().String() + "/parameters"); err != nil ||
		other.StatusCode != http.StatusNotFound {
		t.Errorf("parameters can be had without the control socket: %v, %v", other, err)
	}
}

func TestTheControlSocketIsTheOwners(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm"}`)
	info, err := os.Stat(filepath.Join(r.folder, "control"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	_, err = NewControl(r.proxy)
	must.Refuse(t, err, "running")
}

func TestRefusedParametersChangeNothing(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, everyPolicy[1])
	for body, want := range map[string]string{
		`{`: "cannot be read",
		`{"policy": "pm", "workloads": [{"name": "a"}]}`:                                             "no clients",
		`{"policy": "pm", "workloads": [{"name": "a b", "clients": ["10.0.0.1"]}]}`:                  "write a name",
		`{"policy": "pm", "workloads": [{"name": "unknown", "clients": ["10.0.0.1"]}]}`:              "write a name",
		`{"policy": "pm", "workloads": [{"name": "a", "clients": ["host"]}]}`:                        "neither an address",
		`{"policy": "pm", "unknown": "drop"}`:                                                        "unknown is",
		`{"policy": "pm", "other_cost": -1}`:                                                         "other_cost",
		`{"policy": "lottery"}`:                                                                      "policy is",
		`{"policy": "pm", "workloads": [{"name": "a", "clients": ["10.0.0.1", "10.0.0.1"]}]}`:        "name it once",
		`{"policy": "pm", "workloads": [{"name": "a", "clients": ["10.0.0.1"], "pairs": [[0, 0]]}]}`: "pairs[0]",
	} {
		code, answer := r.ask("PUT", "/parameters", body)
		if code != http.StatusBadRequest || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s; want 400 and %q", body, code, answer, want)
		}
	}
	_, text := r.ask("GET", "/parameters", "")
	if code, answer := r.ask("PUT", "/parameters", text); code != http.StatusOK || !strings.Contains(text, `"depth":4`) {
		t.Errorf("the parameters are %s; put back: %d %s", text, code, answer)
	}
	if _, text := r.ask("GET", "/status", ""); !strings.Contains(text, `"policy":"pm"`) {
		t.Errorf("the status is %s", text)
	}
}

func TestTracesAreRecorded(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 2}`)
	folder := t.TempDir()
	if code, answer := r.ask("POST", "/trace?folder=/nowhere", ""); code != http.StatusBadRequest {
		t.Errorf("into no folder: %d %s", code, answer)
	}
	if code, answer := r.ask("POST", "/trace?folder="+folder, ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	c, root := r.client(2)
	handle, err := c.Create(root, "one")
	must.Succeed(t, err)
	other, err := c.Create(root, "two")
	must.Succeed(t, err)
	_ = c.Write(handle, 8192, make([]byte, 4096))
	_, _ = c.Read(other, 16, 512)
	_, _ = c.Read(handle, 8192, 100)
	if code, answer := r.ask("POST", "/trace?folder="+folder, ""); code != http.StatusBadRequest {
		t.Errorf("twice: %d %s", code, answer)
	}
	if code, answer := r.ask("DELETE", "/trace", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	text, err := os.ReadFile(filepath.Join(folder, "a.csv"))
	want := `^\d+,1000,DiskWrite,2000\n\d+,200,DiskRead,10000000010\n\d+,64,DiskRead,2000\n$`
	if err != nil || !regexp.MustCompile(want).Match(text) {
		t.Errorf("the trace is %q, %v", text, err)
	}
	if code, answer := r.ask("POST", "/trace?folder="+folder, ""); code != http.StatusBadRequest ||
		!strings.Contains(answer, "already") {
		t.Errorf("over an old trace: %d %s", code, answer)
	}
	if code, _ := r.ask("DELETE", "/trace", ""); code != http.StatusBadRequest {
		t.Error("a trace that is not recorded was ended")
	}
	_ = c.Write(handle, 0, make([]byte, 10))
	if again, _ := os.ReadFile(filepath.Join(folder, "a.csv")); string(again) != string(text) {
		t.Error("an ended trace grew")
	}
}

func TestBadConfigurationsGetASentence(t *testing.T) {
	const rest = `"control": "/c", "profile": "/p", "parameters": {"policy": "none"}}`
	good := `{"nfs": {"listen": "10.0.0.1:2049", "server": "127.0.0.1:2049"}, `
	_, err := ParseConfig([]byte(good + rest))
	must.Succeed(t, err)
	for text, want := range map[string]string{
		`{}`:                                   "nfs.listen is",
		`{"nfs": {"listen": "10.0.0.1:2049"}}`: "nfs.server is",
		good + `"mount": {}, ` + rest:          "mount.listen is",
		good + `"metrics": "x", ` + rest:       "metrics is",
		good + `"client_memory": "1", ` + rest: "client_memory is",
		good + `"max_record": "x", ` + rest:    "max_record",
		good + `"reply_timeout": 0.1, ` + rest: "reply_timeout is",
		good + `"listen": 1, ` + rest:          "unknown field",
		good + `"profile": "/p"}`:              "control is missing",
		good + `"control": "/c"}`:              "profile is missing",
		good + `"control": "/c", "profile": "/p", "parameters": {"policy": "x"}}`: "policy is",
	} {
		_, err := ParseConfig([]byte(text))
		must.Refuse(t, err, want)
	}
	_, err = LoadConfig("/nowhere")
	must.Refuse(t, err, "cannot be read")
}

func TestNothingIsLostOfAWorkloadThatIsTakenOutWhileTheDiskIsSlow(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm", "depth": 2}`)
	folder := t.TempDir()
	if code, answer := r.ask("POST", "/trace?folder="+folder, ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	out, slow, err := os.Pipe() // the writer blocks until the pipe is read
	must.Succeed(t, err)
	rows := make([]byte, 1<<20)
	r.proxy.do(func() {
		for full := false; !full; {
			select {
			case r.proxy.traces.chunks <- chunk{slow, rows}:
			default:
				full = true
			}
		}
	})
	c, root := r.client(3) // workload b
	handle, err := c.Create(root, "one")
	must.Succeed(t, err)
	_ = c.Write(handle, 0, make([]byte, 4096))
	r.put(parameters(`{"policy": "pm", "workloads": [{}]}`))
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if code, answer := r.ask("DELETE", "/trace", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, answer)
	}
	text, err := os.ReadFile(filepath.Join(folder, "b.csv"))
	if err != nil || !regexp.MustCompile(`^\d+,1000,DiskWrite,0\n$`).Match(text) {
		t.Errorf("the trace of b is %q, %v", text, err)
	}
}

func TestATraceThatCannotBeWrittenIsOneError(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "trace"))
	must.Succeed(t, err)
	_ = file.Close()
	w := newTraceWriter()
	for range 5 {
		w.chunks <- chunk{file, make([]byte, 1<<20)}
	}
	close(w.chunks)
	w.done.Wait()
	if w.err == nil || strings.Contains(w.err.Error(), "\n") {
		t.Errorf("five chunks that cannot be written: %v", w.err)
	}
}

func TestAListenerThatFailsIsLogged(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm"}`)
	_ = r.control.listeners[1].Close()
	r.eventually("the log names it", func(Status) bool {
		return strings.Contains(r.log.String(), "nothing is answered at "+r.control.listeners[1].Addr().String())
	})
}

func TestAProxyThatHasEndedAnswersNothing(t *testing.T) {
	r := newRig(t, &memnfs.Server{}, `{"policy": "pm"}`)
	routes := r.proxy.routes()
	r.proxy.Stop()
	<-r.proxy.ended
	for _, request := range []*http.Request{
		httptest.NewRequest("GET", "/status", nil),
		httptest.NewRequest("PUT", "/parameters", strings.NewReader(`{"policy": "none"}`)),
		httptest.NewRequest("POST", "/trace?folder="+t.TempDir(), nil),
	} {
		answer := httptest.NewRecorder()
		routes.ServeHTTP(answer, request)
		if answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), "has ended") {
			t.Errorf("%s %s: %d %s", request.Method, request.URL, answer.Code, answer.Body)
		}
	}
}
