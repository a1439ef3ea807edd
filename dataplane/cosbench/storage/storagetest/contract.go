// Package storagetest is what every object store of the driver's is held to, and in-process stores that
// behave as Swift and S3 do.
package storagetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"hotbed/dataplane/cosbench/access"
	"hotbed/dataplane/cosbench/storage"
)

// Traits are what a store does otherwise than Swift.
type Traits struct {
	// FullContainers can be removed with all in them.
	FullContainers bool
	// LooseContainers lets objects go to containers that nobody made.
	LooseContainers bool
}

// names are of objects that a path has to be escaped for.
var names = []string{"myobjects1", "a b", "ü-日本", "a/b//c", "100%", "q?x=1&y=2#z", "+;,:@=$!*'()", "~._-",
	"back\\slash"}

// Contract checks a store with a container of its own.
func Contract(t *testing.T, s storage.Storage, container string, traits Traits) {
	ctx := t.Context()
	fine := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kind := func(err error, want string) {
		t.Helper()
		var e *access.Error
		if !errors.As(err, &e) || access.KindOf(err) != want || strings.ContainsAny(e.Message, "\r\n") {
			t.Errorf("error %v, not of kind %s", err, want)
		}
	}
	fine(s.DeleteContainer(ctx, container)) // a missing one is no error
	if !traits.LooseContainers {
		_, _, err := s.Get(ctx, container, "x")
		kind(err, access.NotFound)
		kind(s.Put(ctx, container, "x", strings.NewReader("x"), 1), access.NotFound)
		_, err = s.List(ctx, container, "")
		kind(err, access.NotFound)
	}
	fine(s.CreateContainer(ctx, container))
	fine(s.CreateContainer(ctx, container)) // one that exists neither
	empty, err := s.List(ctx, container, "")
	fine(err)

	random := rand.NewChaCha8([32]byte{1})
	for i, size := range []int{0, 1, 1000, 64_000, 300_000, 5_000_000} {
		content := make([]byte, size)
		_, _ = random.Read(content)
		for _, length := range []int64{int64(size), -1} {
			fine(s.Put(ctx, container, names[i], bytes.NewReader(content), length))
			same(ctx, t, s, container, names[i], content)
		}
		// As a reader that is nothing but one, and shorter than what it replaces.
		content = content[:size/2]
		fine(s.Put(ctx, container, names[i], io.MultiReader(bytes.NewReader(content)), int64(len(content))))
		same(ctx, t, s, container, names[i], content)
	}
	for _, name := range names {
		fine(s.Put(ctx, container, name, strings.NewReader(name), int64(len(name))))
	}
	for _, name := range names {
		same(ctx, t, s, container, name, []byte(name))
	}
	all, err := s.List(ctx, container, "")
	fine(err)
	some, err := s.List(ctx, container, "a b")
	fine(err)
	if !(empty < some && some < all) {
		t.Errorf("listings have %d, %d and %d bytes", empty, some, all)
	}
	body, _, err := s.Get(ctx, container, names[0]) // one that is not read
	fine(err)
	fine(body.Close())

	_, _, err = s.Get(ctx, container, "nothing")
	kind(err, access.NotFound)
	kind(s.Put(ctx, container, "short", strings.NewReader("abc"), 4), access.Client)
	if !traits.FullContainers {
		kind(s.DeleteContainer(ctx, container), access.Client)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	err = s.Put(ended, container, "late", strings.NewReader("abc"), 3)
	if kind(err, access.Client); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, name := range names {
		fine(s.Delete(ctx, container, name))
	}
	fine(s.Delete(ctx, container, names[0])) // a missing one is no error
	_, _, err = s.Get(ctx, container, names[0])
	kind(err, access.NotFound)
	fine(s.DeleteContainer(ctx, container))
	fine(s.DeleteContainer(ctx, container))
}

// same reads an object and compares.
func same(ctx context.Context, t *testing.T, s storage.Storage, container, name string, want []byte) {
	t.Helper()
	body, length, err := s.Get(ctx, container, name)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, body)
	if err := errors.Join(err, body.Close()); err != nil {
		t.Fatal(err)
	}
	if wanted := sha256.Sum256(want); n != int64(len(want)) || length >= 0 && length != n ||
		!bytes.Equal(sum.Sum(nil), wanted[:]) {
		t.Errorf("%s has %d bytes (it says %d), not the %d that were stored", name, n, length, len(want))
	}
}
