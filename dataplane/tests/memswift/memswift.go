// Package memswift is an in-memory object store that answers as Swift's proxy with TempAuth does, for
// tests and benchmarks. It has one account, and only the parts of the protocol that load drivers use.
package memswift

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// AuthPath is the login path; AccountPath is the prefix of all names.
	AuthPath    = "/auth/v1.0"
	AccountPath = "/v1/AUTH_test"
	lifetime    = 24 * 60 * 60 // of a token, in seconds
)

// Server is a store. Its zero value with a user and a key is empty and ready.
type Server struct {
	// User and Key are the login.
	User, Key string

	mu         sync.Mutex
	token      int
	logins     int
	containers map[string]*container
}

type container struct {
	policy  string
	objects map[string][]byte
}

// Token returns the valid token.
func (s *Server) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.good()
}

func (s *Server) good() string { return fmt.Sprintf("AUTH_tk%d", s.token) }

// Expire invalidates all tokens.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token++
}

// Logins returns the number of logins.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// Policy returns the policy requested at a container's creation.
func (s *Server) Policy(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[name]; c != nil {
		return c.policy
	}
	return ""
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Trans-Id", "tx1")
	if r.URL.Path == AuthPath {
		s.login(w, r)
		return
	}
	if r.Header.Get("X-Auth-Token") != s.Token() {
		refuse(w, http.StatusUnauthorized)
		return
	}
	rest, found := strings.CutPrefix(r.URL.Path, AccountPath)
	if !found {
		refuse(w, http.StatusForbidden)
		return
	}
	body, err := content(r)
	if err != nil {
		w.WriteHeader(499) // Swift's status for a client that went away
		return
	}
	name, object, isObject := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case name == "":
		w.WriteHeader(http.StatusNoContent)
	case isObject:
		s.object(w, r, name, object, body)
	default:
		s.container(w, r, name)
	}
}

func content(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(r.Body)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

func refuse(w http.ResponseWriter, status int) {
	http.Error(w, "<html><h1>"+http.StatusText(status)+"</h1></html>", status)
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Auth-User") != s.User || r.Header.Get("X-Auth-Key") != s.Key {
		refuse(w, http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logins++
	w.Header().Set("X-Auth-Token", s.good())
	w.Header().Set("X-Auth-Token-Expires", strconv.Itoa(lifetime))
	w.Header().Set("X-Storage-Url", "http://"+r.Host+AccountPath)
}

func (s *Server) container(w http.ResponseWriter, r *http.Request, name string) {
	c := s.containers[name]
	switch {
	case r.Method == http.MethodPut && c != nil:
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodPut:
		if s.containers == nil {
			s.containers = map[string]*container{}
		}
		s.containers[name] = &container{r.Header.Get("X-Storage-Policy"), map[string][]byte{}}
		w.WriteHeader(http.StatusCreated)
	case c == nil:
		refuse(w, http.StatusNotFound)
	case r.Method == http.MethodDelete && len(c.objects) > 0:
		refuse(w, http.StatusConflict)
	case r.Method == http.MethodDelete:
		delete(s.containers, name)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		c.list(w, r.URL.Query().Get("prefix"))
	default:
		refuse(w, http.StatusMethodNotAllowed)
	}
}

func (c *container) list(w http.ResponseWriter, prefix string) {
	var names []string
	for name := range c.objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name+"\n")
		}
	}
	if len(names) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	slices.Sort(names)
	_, _ = io.WriteString(w, strings.Join(names, "")) // an error is a client that went away
}

func (s *Server) object(w http.ResponseWriter, r *http.Request, container, name string, body []byte) {
	c := s.containers[container]
	if c == nil {
		refuse(w, http.StatusNotFound)
		return
	}
	content, found := c.objects[name]
	switch {
	case r.Method == http.MethodPut:
		c.objects[name] = body
		w.WriteHeader(http.StatusCreated)
	case !found:
		refuse(w, http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(c.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content) // an error is a client that went away
	default:
		refuse(w, http.StatusMethodNotAllowed)
	}
}
