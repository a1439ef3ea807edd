package layers

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"hotbed/dataplane/tests/must"
)

const (
	crashEnv    = "LAYERS_CRASH_DIR"
	crashBlocks = 4096
)

// TestMain lets the test binary be its own victim: with crashEnv set it writes until killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashEnv); dir != "" {
		crashWriter(dir)
		return
	}
	os.Exit(m.Run())
}

// crashOffset spreads partial writes over the disk so that almost each needs a copy-up.
func crashOffset(i int) int64 { return int64(i*1031%crashBlocks)*BlockSize + 512*int64(i%7) }

func crashWriter(dir string) {
	d, err := Open([]string{filepath.Join(dir, "base"), filepath.Join(dir, "top")}, 0)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	for i := 0; i < crashBlocks; i++ {
		if _, err := d.WriteAt(fill(byte(1+i%250), 512), crashOffset(i)); err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println(i) // acknowledged
	}
	select {} // wait for the kill
}

func TestKillNineLosesNothingThatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	d := open(t, crashBlocks*BlockSize, filepath.Join(dir, "base"))
	write(t, d, 0, fill(0xbb, crashBlocks*BlockSize))
	_ = d.Close()

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	acked := -1
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "error") {
			t.Error(lines.Text())
			break
		}
		if i, err := strconv.Atoi(lines.Text()); err == nil {
			acked = i
		}
		if acked == 1500 {
			_ = cmd.Process.Kill() // SIGKILL, during its writes
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if acked < 1500 {
		t.Fatalf("only %d writes were acknowledged", acked+1)
	}

	d = open(t, 0, filepath.Join(dir, "base"), filepath.Join(dir, "top"))
	for i := 0; i <= acked; i++ {
		off := crashOffset(i)
		if got := read(t, d, off, 512); !bytes.Equal(got, fill(byte(1+i%250), 512)) {
			t.Fatalf("write %d of %d at %d is lost", i, acked+1, off)
		}
		last := off - off%BlockSize + 7*512
		if got := read(t, d, last, 512); !bytes.Equal(got, fill(0xbb, 512)) {
			t.Fatalf("write %d: the rest of its block at %d is not the layer below", i, off)
		}
	}
}
