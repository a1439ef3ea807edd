package redirectlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"hotbed/dataplane/sim"
	"hotbed/dataplane/tests/must"
	"hotbed/dataplane/tests/simdisk"
	"hotbed/dataplane/twochoice/redirectlog"
)

const (
	file = "redirect.log"
	cut  = "<cut>" // the entry that replaces a torn tail
)

// open opens a log and returns its entries, one after the other.
func open(d redirectlog.FS, mustExist bool) (*redirectlog.Journal, redirectlog.Recovery, string, error) {
	var read strings.Builder
	j, recovery, err := redirectlog.OpenJournal(d, file, 0, mustExist, []byte(cut), func(entries []byte) error {
		read.Write(entries)
		return nil
	})
	return j, recovery, read.String(), err
}

func mustOpen(t testing.TB, d redirectlog.FS) (*redirectlog.Journal, redirectlog.Recovery, string) {
	t.Helper()
	j, recovery, read, err := open(d, false)
	must.Succeed(t, err)
	return j, recovery, read
}

// some returns the entries of one append.
func some(random *sim.Stream) [][]byte {
	out := make([][]byte, 1+random.IntN(3))
	for i := range out {
		out[i] = fmt.Appendf(nil, "%0*x;", 1+random.IntN(60), random.Uint64())
	}
	return out
}

func join(entries [][]byte) string { return string(slices.Concat(entries...)) }

// An acknowledged append survives the death of its process at every call, and a loss of power at
// once or after the log was read again; an unfinished append or rewrite is there wholly or not at all.
func TestWhatWasAcknowledgedSurvivesACrashAtEveryCall(t *testing.T) {
	for seed := range uint64(6) {
		for at := 1; crashes(t, seed, at); at++ {
			if t.Failed() {
				t.Fatalf("with seed %d and a crash at call %d", seed, at)
			}
		}
	}
}

func crashes(t *testing.T, seed uint64, at int) (reached bool) {
	t.Helper()
	random := sim.NewStream(seed, fmt.Sprint(at))
	d := simdisk.New(random)
	acknowledged := ""
	for life := range 4 {
		calls, last := 0, at
		if life > 0 {
			last = 1 + int(random.IntN(int64(2*at)))
		}
		d.Step = func() error {
			if calls++; calls >= last {
				return simdisk.ErrCrash
			}
			return nil
		}
		j, _, read, err := open(d, acknowledged != "")
		next := acknowledged
		for i := 0; err == nil && i < 12; i++ {
			if i == 0 && strings.ReplaceAll(read, cut, "") != acknowledged {
				t.Errorf("life %d begins with %q, and acknowledged was %q", life, read, acknowledged)
			}
			acknowledged = next
			entries := some(random)
			if i%5 == 4 {
				next = join(entries)
				err = j.Replace(entries)
			} else {
				next = acknowledged + join(entries)
				err = j.Append(entries)
			}
		}
		d.Step = nil
		if err == nil {
			acknowledged = next
			continue
		}
		reached = reached || life == 0
		if !errors.Is(err, simdisk.ErrCrash) {
			t.Errorf("life %d ends by %v", life, err)
		}
		if seed%2 == 0 {
			d.LosePower()
		}
		for range 2 { // what was read once stays, even if the power fails now
			_, _, read = mustOpen(t, d)
			if read = strings.ReplaceAll(read, cut, ""); read != acknowledged && read != next {
				t.Errorf("life %d left %q, and acknowledged was %q, then %q", life, read, acknowledged, next)
			}
			acknowledged, next = read, read
			d.LosePower()
		}
	}
	return reached
}

func TestAFullDiskLeavesTheLogAsItWas(t *testing.T) {
	refusals := 0
	for seed := range uint64(300) {
		random := sim.NewStream(seed, "full")
		d := simdisk.New(random)
		j, _, _ := mustOpen(t, d)
		acknowledged := ""
		for i := range 20 {
			d.Full = i%5 != 0
			entries := some(random)
			next := acknowledged + join(entries)
			do := j.Append
			if i%7 == 6 {
				next, do = join(entries), j.Replace
			}
			err := do(entries)
			switch {
			case err == nil:
				acknowledged = next
				continue
			case errors.Is(err, redirectlog.ErrUnwritten) && errors.Is(err, syscall.ENOSPC):
				next = acknowledged // surely not done
				refusals++
			case j.Append(entries) == nil || j.Replace(entries) == nil:
				t.Fatalf("seed %d: a log that failed by %v is written", seed, err)
			default:
				d.Full = false
				d.LosePower()
				var read string
				j, _, read = mustOpen(t, d)
				if read = strings.ReplaceAll(read, cut, ""); read != acknowledged && read != next {
					t.Fatalf("seed %d: %q after %q: %v", seed, read, acknowledged, err)
				}
				must.Succeed(t, j.Replace([][]byte{[]byte(read)}))
				acknowledged = read
			}
		}
		d.Full = false
		d.LosePower()
		if _, _, read := mustOpen(t, d); strings.ReplaceAll(read, cut, "") != acknowledged {
			t.Fatalf("seed %d: %q, and acknowledged was %q", seed, read, acknowledged)
		}
	}
	if refusals < 300 {
		t.Errorf("only %d changes found no room", refusals)
	}
}

func TestALogWhoseSyncFailedIsNotWrittenAgain(t *testing.T) {
	d := simdisk.New(sim.NewStream(1, "sick"))
	j, _, _ := mustOpen(t, d)
	entries := [][]byte{[]byte("a;")}
	d.Sick = true
	err := j.Append(entries)
	if !errors.Is(err, syscall.EIO) || errors.Is(err, redirectlog.ErrUnwritten) {
		t.Fatalf("the answer is %v", err)
	}
	if again, replaced := j.Append(entries), j.Replace(entries); again != err || replaced != err {
		t.Fatalf("afterwards: %v, %v", again, replaced)
	}
	j, _, _ = mustOpen(t, simdisk.New(sim.NewStream(1, "large")))
	if err := j.Append([][]byte{make([]byte, redirectlog.MaxPayload+1)}); !errors.Is(err, redirectlog.ErrUnwritten) {
		t.Errorf("an append that is too large: %v", err)
	}
}

// written returns a log of several appends after a rewrite, its contents after each append, and
// each frame's start. The last append is longer than two sectors.
func written(t testing.TB, rewritten bool) (log []byte, contents []string, starts []int64) {
	t.Helper()
	random := sim.NewStream(5, "log")
	d := simdisk.New(random)
	j, _, content := mustOpen(t, d)
	add := func(entries [][]byte) {
		end, _ := j.End()
		starts = append(starts, end)
		must.Succeed(t, j.Append(entries))
		content += join(entries)
		contents = append(contents, content)
	}
	for range 5 {
		add(some(random))
	}
	if rewritten {
		must.Succeed(t, j.Replace([][]byte{[]byte(content)}))
		contents, starts = contents[4:], []int64{redirectlog.HeaderSize}
	}
	for range 3 {
		add(some(random))
	}
	add([][]byte{bytes.Repeat([]byte("0123456789abcde;"), 90)})
	return logOf(t, d), contents, starts
}

func logOf(t testing.TB, d *simdisk.Disk) []byte {
	t.Helper()
	f, err := d.Open(file)
	must.Succeed(t, err)
	log, err := redirectlog.LogIn(f)
	must.Succeed(t, err)
	return log
}

// twice returns the file of a log.
func twice(log []byte) []byte { return redirectlog.AppendPairs(nil, log) }

func with(content []byte) *simdisk.Disk {
	d := simdisk.New(sim.NewStream(0, ""))
	d.Put(file, content)
	return d
}

// reopens checks that a log opens with the wanted content, can be written, and is intact afterwards.
func reopens(t *testing.T, content []byte, want string) redirectlog.Recovery {
	t.Helper()
	d := with(content)
	j, recovery, read := mustOpen(t, d)
	if recovery.TornBytes > 0 {
		want += cut
	}
	if read != want {
		t.Fatalf("%+v: read is %q, and there was %q", recovery, read, want)
	}
	if err := j.Append([][]byte{[]byte("more;")}); err != nil {
		t.Fatal(err)
	}
	if _, second, read := mustOpen(t, d); second != (redirectlog.Recovery{}) || read != want+"more;" {
		t.Fatalf("opened again: %+v, %q", second, read)
	}
	return recovery
}

// refuses checks that a log is refused at the frame starting at a byte, and left unchanged.
func refuses(t *testing.T, content []byte, start int64) {
	t.Helper()
	d := with(content)
	_, _, _, err := open(d, false)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("corrupt at byte %d:", redirectlog.InFile(start))) {
		t.Fatalf("damage in the frame at %d: %v", start, err)
	}
	if !slices.Equal(d.Bytes(file), content) {
		t.Fatal("the file was changed")
	}
}

const sector = redirectlog.SectorSize

var zeros [sector]byte

// sectors returns the sectors in which two files differ; the shorter file continues with zeros.
func sectors(a, b []byte) []int {
	var out []int
	for at := 0; at < max(len(a), len(b)); at += sector {
		part := func(f []byte) []byte {
			return append(slices.Clone(f[min(at, len(f)):min(at+sector, len(f))]), zeros[:]...)[:sector]
		}
		if !slices.Equal(part(a), part(b)) {
			out = append(out, at)
		}
	}
	return out
}

// Each sector of an append reaches the disk or not: the append is complete or cut off.
func TestATornTailIsCutOff(t *testing.T) {
	for _, rewritten := range []bool{false, true} {
		log, contents, starts := written(t, rewritten)
		last := int(starts[len(starts)-1])
		before, after := twice(log[:last]), twice(log)
		differ := sectors(before, after)
		if len(differ) < 6 {
			t.Fatalf("the last append is in %d sectors", len(differ))
		}
		for mask := range 1 << len(differ) {
			content := slices.Clone(before)
			there := [2]int{}
			for i, at := range differ {
				if mask>>i&1 == 1 {
					content = append(content, make([]byte, max(0, at+sector-len(content)))...)
					copy(content[at:], after[at:at+sector])
					there[at/redirectlog.BlockSize%2] |= 1 << (at % redirectlog.BlockSize / sector)
				}
			}
			whole := there[0]|there[1] == (1<<(len(differ)/2)-1)<<(last/sector)
			want := contents[len(contents)-2]
			if whole {
				want = contents[len(contents)-1]
			}
			recovery := reopens(t, content, want)
			if torn := !whole && mask > 0; torn != (recovery.TornBytes > 0) ||
				torn && recovery.TornAt != redirectlog.InFile(int64(last)) {
				t.Fatalf("sectors %b of %v: %+v", mask, differ, recovery)
			}
		}
	}
}

// unreadable is a disk on which every read fails.
type unreadable struct{ *simdisk.Disk }

func (d unreadable) Open(name string) (redirectlog.File, error) {
	f, err := d.Disk.Open(name)
	return unreadableFile{f}, err
}

type unreadableFile struct{ redirectlog.File }

func (unreadableFile) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

func TestADiskThatCannotBeReadIsNoTornTail(t *testing.T) {
	log, _, _ := written(t, false)
	content := twice(log)
	d := with(content)
	if _, _, _, err := open(unreadable{d}, true); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the answer is %v", err)
	}
	if !bytes.Equal(d.Bytes(file), content) {
		t.Fatal("the file was changed")
	}
}

// Any damage to any one sector loses nothing, and is repaired.
func TestADamagedSectorIsRepaired(t *testing.T) {
	for _, rewritten := range []bool{false, true} {
		log, contents, starts := written(t, rewritten)
		other, _, _ := written(t, !rewritten)
		content := twice(log)
		// A sector of the same file, of the file before its last append, or of another file.
		others := map[[sector]byte]bool{}
		for part := range slices.Chunk(slices.Concat(content, twice(log[:starts[len(starts)-1]]), twice(other)), sector) {
			others[[sector]byte(part)] = true
		}
		for at := 0; at < len(content); at += sector {
			spoil := func(with []byte) {
				spoilt := slices.Clone(content)
				copy(spoilt[at:], with)
				recovery := reopens(t, spoilt, contents[len(contents)-1])
				if !slices.Equal(spoilt, content) && recovery == (redirectlog.Recovery{}) {
					t.Fatalf("sector %d: %+v", at, recovery)
				}
			}
			for bit := range 8 {
				flipped := slices.Clone(content[at : at+sector])
				flipped[(at/sector*97+bit*61)%sector] ^= 1 << bit
				spoil(flipped)
			}
			spoil(zeros[:])
			for one := range others {
				spoil(one[:])
			}
		}
	}
}

// Any sectors may be damaged as long as the other copy of each is intact.
func TestAFrameIsPutTogetherFromBothCopies(t *testing.T) {
	log, contents, _ := written(t, false)
	content := twice(log)
	n := (len(log) + sector - 1) / sector
	for mask := range 1 << n {
		spoilt := slices.Clone(content)
		for i := range n {
			copy(spoilt[i*sector+(mask>>i&1)*redirectlog.BlockSize:], zeros[:])
		}
		reopens(t, spoilt, contents[len(contents)-1])
	}
}

// A frame damaged in both copies is not torn, not even the last frame: it has its full length.
// Nothing that follows a damaged frame is its tail.
func TestAFrameThatIsDamagedInBothCopiesIsRefused(t *testing.T) {
	for _, rewritten := range []bool{false, true} {
		log, _, starts := written(t, rewritten)
		first, last := starts[len(starts)-2], starts[len(starts)-1]
		for at := int64(0); at < int64(len(log)); at += 3 {
			i, found := slices.BinarySearch(starts, at)
			start := int64(0)
			if found {
				start = at
			} else if i > 0 {
				start = starts[i-1]
			}
			if at-last >= 4 && at-last < 8 {
				continue // a last record that claims to be longer may be torn
			}
			spoilt := slices.Clone(log)
			spoilt[at] ^= 1 << (at % 8)
			refuses(t, twice(spoilt), start)
			// The last append is torn too.
			for end := (last + sector - 1) / sector * sector; at >= first && at < last && end < int64(len(log)); end += sector {
				refuses(t, twice(spoilt[:end]), first)
			}
		}
	}
	log, _, starts := written(t, true)
	for i := 1; i+1 < len(starts); i++ { // a whole frame is missing
		refuses(t, twice(slices.Concat(log[:starts[i]], log[starts[i+1]:])), starts[i])
	}
	// More is unreadable than one append can contain.
	refuses(t, twice(append(slices.Clone(log), bytes.Repeat([]byte{1}, 2*redirectlog.MaxPayload)...)), int64(len(log)))
	for end := range starts[1] { // within what was durable before the file got its name
		if content := twice(log[:end]); !slices.Equal(content, twice(log[:starts[1]])) {
			if _, _, _, err := open(with(content), false); err == nil {
				t.Errorf("cut at %d of %d", end, starts[1])
			}
		}
	}
}

func TestALogOfAnotherIsRefused(t *testing.T) {
	log, _, _ := written(t, false)
	foreign := errors.New("an entry of another cluster")
	for want, try := range map[string]struct {
		content []byte
		owner   uint32
		err     error
	}{
		"is of OSD 0, not of OSD 1": {content: twice(log), owner: 1},
		"is of version 3":           {content: twice(redirectlog.Newer(log))},
		"does not belong to this":   {content: twice(log), err: foreign},
	} {
		d := with(try.content)
		_, _, err := redirectlog.OpenJournal(d, file, try.owner, true, nil, func([]byte) error { return try.err })
		if err == nil || !strings.Contains(err.Error(), want) || try.err != nil && !errors.Is(err, try.err) {
			t.Errorf("wanted %q, got %v", want, err)
		}
		if !slices.Equal(d.Bytes(file), try.content) {
			t.Error("a log that was refused was changed")
		}
	}
	if _, _, _, err := open(simdisk.New(nil), true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
}

// A leftover of an older log file is not a record of the new file, even if its number fits.
func TestARecordOfAnOlderFileIsNotTaken(t *testing.T) {
	old, contents, starts := written(t, false)
	d := with(twice(old))
	j, _, _ := mustOpen(t, d)
	want := contents[len(contents)-1]
	must.Succeed(t, j.Replace([][]byte{[]byte(want)}))
	log := logOf(t, d)
	_, number := j.End()
	left := slices.Concat(log, old[starts[number]:starts[number+1]])
	refuses(t, twice(left), int64(len(log)))
	content := slices.Clone(d.Bytes(file))
	copy(content[redirectlog.BlockSize:], left) // in one copy
	if recovery := reopens(t, content, want); recovery.TornBytes == 0 {
		t.Fatalf("a record of an older file was taken: %+v", recovery)
	}
}

// A stale header in one copy of a rewritten log, from before the rewrite, loses no append.
func TestAStaleHeaderDoesNotRollTheLogBack(t *testing.T) {
	for _, appends := range []int{5, 7, 20} {
		for _, size := range []int{1000, 3000, 20000} {
			for _, stale := range []int{sector, redirectlog.BlockSize} {
				d := simdisk.New(nil)
				j, _, _ := mustOpen(t, d)
				for i := range appends {
					if err := j.Append([][]byte{fmt.Appendf(nil, "old %d;", i)}); err != nil {
						t.Fatal(err)
					}
				}
				former := slices.Clone(d.Bytes(file)[:stale])
				content := strings.Repeat("x", size)
				if err := errors.Join(j.Replace([][]byte{[]byte(content)}), j.Append([][]byte{[]byte("NEW;")})); err != nil {
					t.Fatal(err)
				}
				reopens(t, slices.Concat(former, d.Bytes(file)[stale:]), content+"NEW;")
			}
		}
	}
}

// FuzzOpen opens arbitrary logs. No log causes a panic, a refused log stays unchanged, and an
// opened log has the same content when it is opened again.
func FuzzOpen(f *testing.F) {
	for _, rewritten := range []bool{false, true} {
		log, _, _ := written(f, rewritten)
		f.Add(log, uint32(0))
		f.Add(log[:len(log)-9], uint32(5000))
	}
	f.Add([]byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, log []byte, flip uint32) {
		content := twice(log)
		if int(flip/8) < len(content) {
			content[flip/8] ^= 1 << (flip % 8)
		}
		d := with(content)
		_, _, want, err := open(d, false)
		if err != nil {
			if !slices.Equal(d.Bytes(file), content) {
				t.Fatalf("%v, and the file was changed", err)
			}
			return
		}
		if _, second, read := mustOpen(t, d); second.TornBytes != 0 || read != want {
			t.Fatalf("opened again: %+v, %q", second, read)
		}
	})
}
