package auth

import (
	"context"
	"sync"
	"time"

	"hotbed/dataplane/cosbench/access"
)

// account is what one login serves many workers with: however many of them find at once that the
// token has run out, one of them logs in again, and all get what came of it.
type account struct {
	login func(ctx context.Context) (Session, error)
	// hold is for how long a failed renewal is everybody's answer: a store that refuses each request
	// must not have each ask the auth service too.
	hold time.Duration

	mu     sync.Mutex
	turn   int // how many sessions there were
	now    Session
	flight *flight
}

// flight is one renewal on its way, or one that failed a moment ago.
type flight struct {
	done   chan struct{}
	err    error
	failed time.Time
}

const holdFailure = time.Second

// open logs in for the first time.
func open(ctx context.Context, login func(ctx context.Context) (Session, error)) (Session, error) {
	a := &account{login: login, hold: holdFailure}
	session, err := login(ctx)
	if err != nil {
		return Session{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.take(session), nil
}

// take makes a session the current one. The lock is held.
func (a *account) take(session Session) Session {
	a.turn++
	turn := a.turn
	session.Renew = func(ctx context.Context) (Session, error) { return a.renew(ctx, turn) }
	a.now = session
	return session
}

// renew returns a session later than the one of that turn.
func (a *account) renew(ctx context.Context, turn int) (Session, error) {
	a.mu.Lock()
	if a.turn > turn {
		defer a.mu.Unlock()
		return a.now, nil
	}
	f := a.flight
	if f == nil || !f.failed.IsZero() && time.Since(f.failed) >= a.hold {
		f = &flight{done: make(chan struct{})}
		a.flight = f
		// It is everybody's: the worker who began it may be called off.
		go a.fly(context.WithoutCancel(ctx), f)
	}
	a.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		return Session{}, access.Ended(ctx.Err())
	}
	if f.err != nil {
		return Session{}, f.err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now, nil
}

func (a *account) fly(ctx context.Context, f *flight) {
	session, err := a.login(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.take(session)
		a.flight = nil
	} else {
		f.err, f.failed = err, time.Now()
	}
	close(f.done)
}
