package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLockOfPool checks that the lock is in our own folder, follows no link and has one holder.
func TestLockOfPool(t *testing.T) {
	top := t.TempDir()
	folder := filepath.Join(top, "run")
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	lock, err := lockIn(folder, "twochoice.a")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("the folder has mode %v (%v)", info.Mode(), err)
	}
	if again, err := lockIn(folder, "twochoice.a"); err == nil {
		t.Fatalf("locked twice: %v", again.Name())
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(top, "theirs")
	if err := os.Symlink(theirs, filepath.Join(folder, "hotbed-twochoice.b.lock")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(folder, filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{folder, filepath.Join(top, "link")} {
		if lock, err := lockIn(in, "twochoice.b"); err == nil {
			t.Fatalf("%s was followed", lock.Name())
		}
	}
	if _, err := os.Lstat(theirs); err == nil {
		t.Fatal("a file was made through a link")
	}
}
