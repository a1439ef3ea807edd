package simdisk

import (
	"bytes"
	"testing"

	"hotbed/dataplane/sim"
)

// Synced data survives a power loss completely, unsynced data at most in part.
func TestALossOfPowerTakesNothingThatWasSynced(t *testing.T) {
	later := bytes.Repeat([]byte("later! "), 12)
	lost, kept, torn, holes := 0, 0, 0, 0
	for seed := range uint64(300) {
		d := New(sim.NewStream(seed, "disk"))
		file, err := d.Create("log")
		check(t, err)
		_, err = file.WriteAt([]byte("synced"), 0)
		check(t, err)
		check(t, file.Sync())
		check(t, d.SyncFolder())
		_, err = file.WriteAt(later, 6)
		check(t, err)
		other, err := d.Create("new")
		check(t, err)
		_, err = other.WriteAt([]byte("n"), 0)
		check(t, err)
		check(t, other.Sync())
		check(t, d.Rename("new", "renamed"))
		d.LosePower()
		data := d.names["log"].data
		switch {
		case !bytes.HasPrefix(data, []byte("synced")):
			t.Fatalf("seed %d: %q", seed, data)
		case len(data) == 6:
			lost++
		case bytes.Equal(data[6:], later):
			kept++
		case bytes.HasPrefix(later, data[6:]):
			torn++
		default:
			holes++
			for i, b := range data[6:] {
				if b != 0 && b != later[i] {
					t.Fatalf("seed %d: %q", seed, data)
				}
			}
		}
		if (d.names["new"] != nil) && (d.names["renamed"] != nil) {
			t.Fatalf("seed %d: a file has both names", seed)
		}
	}
	if lost < 50 || kept < 50 || torn < 5 || holes < 30 {
		t.Errorf("%d lost, %d kept, %d torn, %d with holes", lost, kept, torn, holes)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
