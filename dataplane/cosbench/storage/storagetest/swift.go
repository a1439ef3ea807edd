package storagetest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"hotbed/dataplane/testservers/memswift"
)

// Swift is a store in memory that answers as Swift's proxy with TempAuth does.
type Swift struct {
	*httptest.Server
	Store *memswift.Server

	before atomic.Pointer[Answer]
}

// Answer answers a request, unless it is false.
type Answer func(w http.ResponseWriter, r *http.Request) bool

// Before has each request to the account asked of this first; nil: no more.
func (s *Swift) Before(answer Answer) { s.before.Store(&answer) }

// NewSwift starts one.
func NewSwift(t testing.TB) *Swift {
	s := &Swift{Store: &memswift.Server{User: "test:tester", Key: "test-key"}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Trans-Id", "tx1")
		before := s.before.Load()
		if r.URL.Path != memswift.AuthPath && before != nil && *before != nil && (*before)(w, r) {
			return
		}
		s.Store.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// AuthURL is where one logs in.
func (s *Swift) AuthURL() string { return s.URL + memswift.AuthPath }

// StorageURL is the account's.
func (s *Swift) StorageURL() string { return s.URL + memswift.AccountPath }
