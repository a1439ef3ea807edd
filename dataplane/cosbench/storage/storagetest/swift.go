package storagetest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"hotbed/dataplane/internal/memswift"
)

// Swift is a store in memory that answers as Swift's proxy with TempAuth does.
type Swift struct {
	*httptest.Server
	Store *memswift.Server
	// Before is asked before each request to the account; true: it has answered itself.
	Before func(w http.ResponseWriter, r *http.Request) bool
}

// NewSwift starts one.
func NewSwift(t testing.TB) *Swift {
	s := &Swift{Store: &memswift.Server{User: "test:tester", Key: "test-key"}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Trans-Id", "tx1")
		if r.URL.Path != memswift.AuthPath && s.Before != nil && s.Before(w, r) {
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
