// Package must ends a test at an error that the test does not expect.
package must

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Succeed ends the test if one of the errors is not nil.
func Succeed(t testing.TB, errs ...error) {
	if err := errors.Join(errs...); err != nil {
		t.Helper() // only here, because it takes longer than many a call that succeeds
		t.Fatal(err)
	}
}

// Write writes a file of this name into a new folder and returns its path. Only its owner may read it.
func Write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Read returns the bytes of a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	Succeed(t, err)
	return text
}

// Refuse fails the test unless the error is one line with a text.
func Refuse(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is %v; want one line with %q", err, text)
	}
}

// Come waits, a minute at most, until a condition holds.
func Come(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came that %s", what)
		}
	}
}
