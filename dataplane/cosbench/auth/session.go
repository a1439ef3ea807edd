// Package auth gets the sessions with which object stores are spoken to: COSBench's auth types
// none, mock, swauth, keystone and httpauth.
package auth

import (
	"context"
	"time"

	"hotbed/dataplane/cosbench/access"
)

// Session is what an auth service hands out. The zero Session is that of auth type none.
type Session struct {
	StorageURL string // where the account is, without a slash at the end; empty: the store knows
	Token      string // empty: requests carry none
	// Authorization is the header of that name that each request carries; empty: none.
	Authorization string
	// Expires is when the token runs out, so that it can be renewed before; zero: not known.
	Expires time.Time
	// Renew gets a new session when the token has run out; nil: there is nothing to renew. It may
	// be called by many workers at once.
	Renew func(ctx context.Context) (Session, error)
}

// Opener gets a session by what an auth element's config says.
type Opener func(ctx context.Context, config access.Config) (Session, error)

// Kind is one auth type: the keys that its config may have, what may stand there, and how to get a
// session.
type Kind struct {
	Keys []string
	// Check says what is wrong with the values that the config has, without asking anybody. Nil:
	// nothing is checked.
	Check func(config access.Config) error
	Open  Opener
}

// Registry holds the auth types by the name that a workload's XML uses.
type Registry map[string]Kind
