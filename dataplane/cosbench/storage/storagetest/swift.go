package storagetest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
)

// Swift is a store in memory that answers as Swift's proxy with TempAuth does.
type Swift struct {
	*httptest.Server
	// User and Key log in.
	User, Key string
	// Before is asked before each request to the account; true: it has answered itself.
	Before func(w http.ResponseWriter, r *http.Request) bool
	// Policy is that of each container.
	Policy map[string]string

	mu         sync.Mutex
	token      int
	logins     int
	containers map[string]map[string][]byte
}

// account is what the account's path begins with.
const account = "/v1/AUTH_test"

// NewSwift starts one.
func NewSwift(t testing.TB) *Swift {
	s := &Swift{User: "test:tester", Key: "test-key", Policy: map[string]string{},
		containers: map[string]map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

// AuthURL is where one logs in.
func (s *Swift) AuthURL() string { return s.URL + "/auth/v1.0" }

// StorageURL is the account's.
func (s *Swift) StorageURL() string { return s.URL + account }

// Token is the one that is good now.
func (s *Swift) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.good()
}

func (s *Swift) good() string { return fmt.Sprintf("AUTH_tk%d", s.token) }

// Expire makes all tokens useless.
func (s *Swift) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token++
}

// Logins is how many there were.
func (s *Swift) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

func (s *Swift) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Trans-Id", "tx1")
	if r.URL.Path == "/auth/v1.0" {
		s.login(w, r)
		return
	}
	if s.Before != nil && s.Before(w, r) {
		return
	}
	if r.Header.Get("X-Auth-Token") != s.Token() {
		http.Error(w, "<html><h1>Unauthorized</h1></html>", http.StatusUnauthorized)
		return
	}
	rest, found := strings.CutPrefix(r.URL.Path, account+"/")
	if !found {
		http.Error(w, "", http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(499)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	container, object, isObject := strings.Cut(rest, "/")
	if isObject {
		s.object(w, r, container, object, body)
	} else {
		s.container(w, r, container)
	}
}

func (s *Swift) login(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Auth-User") != s.User || r.Header.Get("X-Auth-Key") != s.Key {
		http.Error(w, "", http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logins++
	w.Header().Set("X-Auth-Token", s.good())
	w.Header().Set("X-Auth-Token-Expires", "86400")
	w.Header().Set("X-Storage-Url", s.StorageURL())
}

func (s *Swift) container(w http.ResponseWriter, r *http.Request, name string) {
	objects, found := s.containers[name]
	switch {
	case r.Method == http.MethodPut && found:
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodPut:
		s.containers[name] = map[string][]byte{}
		s.Policy[name] = r.Header.Get("X-Storage-Policy")
		w.WriteHeader(http.StatusCreated)
	case !found:
		http.Error(w, "<html><h1>Not Found</h1></html>", http.StatusNotFound)
	case r.Method == http.MethodDelete && len(objects) > 0:
		http.Error(w, "<html><h1>Conflict</h1></html>", http.StatusConflict)
	case r.Method == http.MethodDelete:
		delete(s.containers, name)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		names := listed(objects, r.URL.Query().Get("prefix"))
		if len(names) == 0 {
			w.WriteHeader(http.StatusNoContent)
		}
		for _, name := range names {
			_, _ = io.WriteString(w, name+"\n")
		}
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func listed(objects map[string][]byte, prefix string) []string {
	var names []string
	for name := range objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func (s *Swift) object(w http.ResponseWriter, r *http.Request, container, name string, body []byte) {
	objects, found := s.containers[container]
	content, there := objects[name]
	switch {
	case !found || r.Method != http.MethodPut && !there:
		http.Error(w, "<html><h1>Not Found</h1></html>", http.StatusNotFound)
	case r.Method == http.MethodPut:
		objects[name] = body
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodDelete:
		delete(objects, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content)
	}
}
