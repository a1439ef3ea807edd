package traces

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"hotbed/dataplane/tests/must"
)

func all(seq iter.Seq2[Request, error]) (requests []Request, err error) {
	for r, err := range seq {
		if err != nil {
			return requests, err
		}
		requests = append(requests, r)
	}
	return requests, nil
}

func zipped(text string) string {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write([]byte(text))
	_ = zip.Close()
	return packed.String()
}

func TestTracesAreRead(t *testing.T) {
	const text, mark = "5000,1000,DISKREAD\n6000,0x200,DiskWrite,1f0000\nnonsense\n5500,10, Read ,0\n1,2\n", "\xef\xbb\xbf"
	for _, content := range []string{text, zipped(text), mark + text, zipped(mark + text)} {
		path := must.Write(t, "t.csv", content)
		trace, err := Open(path)
		must.Succeed(t, err)
		want := []Request{{0, -1, 4096, true}, {500, 0, 16, true}, {1000, 0x1f0000, 512, false}}
		for range 2 { // it can be read repeatedly
			if got, err := all(trace.each); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v, %v", got, err)
			}
		}
		if trace.Requests != 3 || trace.Length != 1000 || trace.Report.Malformed != 2 ||
			!strings.HasPrefix(trace.Report.First, "line 3: ") {
			t.Errorf("%+v", trace)
		}
	}
	for content, want := range map[string]string{"": "no request in it", "\x1f\x8bx": "t.csv: "} {
		_, err := Open(must.Write(t, "t.csv", content))
		must.Refuse(t, err, want)
	}
	_, err := Open("no/such")
	must.Refuse(t, err, "cannot be read")
	_, err = Open(t.TempDir())
	must.Refuse(t, err, "no file")
}

// counted yields requests, one every nanosecond, and counts those taken.
func counted(count int, taken *int) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		for i := range count {
			*taken = i + 1
			if !yield(Request{At: time.Duration(i)}, nil) {
				return
			}
		}
	}
}

func TestRowsMayBeOutOfOrderByAWindow(t *testing.T) {
	late := func(by int) iter.Seq2[Request, error] {
		return func(yield func(Request, error) bool) {
			for i := range 5 * reach {
				at := time.Duration(i)
				if i == 3*reach {
					at -= time.Duration(by)
				}
				if !yield(Request{At: at}, nil) {
					return
				}
			}
		}
	}
	got, err := all(ordered(late(reach)))
	if err != nil || len(got) != 5*reach {
		t.Fatalf("%d requests, %v", len(got), err)
	}
	for i := 1; i < len(got); i++ {
		if got[i].At < got[i-1].At {
			t.Fatalf("%v after %v", got[i], got[i-1])
		}
	}
	_, err = all(ordered(late(3 * reach)))
	must.Refuse(t, err, "sort the file")
}

func TestALongTraceIsReadAsItIsNeeded(t *testing.T) {
	taken := 0
	trace := Trace{Requests: 1 << 40, each: ordered(counted(1<<40, &taken))}
	f := trace.Feed(false)
	for i := range 10 * blockSize {
		if r, more := f.Peek(); !more || r.At != time.Duration(i) {
			t.Fatalf("%v, %v is number %d", r, more, i)
		}
		f.Skip()
	}
	f.Close()
	for range f.blocks { // until the reader has ended
	}
	if most := 2*reach + (10+blocksAhead+3)*blockSize; taken > most {
		t.Errorf("%d requests were read to give %d; at most %d may be", taken, 10*blockSize, most)
	}
}

func TestAFeedGivesEverythingAndThenTheError(t *testing.T) {
	wrong := errors.New("x")
	trace := Trace{Requests: 3, each: func(yield func(Request, error) bool) {
		_ = yield(Request{Size: 7}, nil) && yield(Request{}, wrong)
	}}
	f := trace.Feed(true)
	defer f.Close()
	if r, more := f.Peek(); !more || r.Size != 7 {
		t.Errorf("%v, %v", r, more)
	}
	f.Skip()
	if _, more := f.Peek(); more || f.err != wrong {
		t.Errorf("%v, %v", more, f.err)
	}
}

func TestATraceThatChangesIsNoticed(t *testing.T) {
	for _, later := range []string{"1,1,DiskRead\n", "1,1,DiskRead\n2,1,DiskRead\n3,1,DiskRead\n", "0,1,DiskRead\n1,1,DiskRead\n"} {
		path := must.Write(t, "t.csv", "1,1,DiskRead\n2,1,DiskRead\n")
		trace, err := Open(path)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(path, []byte(later), 0o644))
		if _, err := all(trace.each); !errors.Is(err, errChanged) {
			t.Errorf("%q: %v", later, err)
		}
	}
}

func TestUsualRowsAreReadAsOthersAre(t *testing.T) {
	for _, text := range []string{"0,0,DiskRead", "123456789012345,ff,DiskWrite,0xFFFF", "1,0x10,DiskRead,0",
		"1234567890123456,1,DiskRead", "1,1,DiskRead,", ",1,DiskRead", "1,,DiskRead", "1,1,DiskReads", "1,1,Disk",
		"1,1,DiskRead,1,1", "a,1,DiskRead", "1,g,DiskRead", "1", "", "1,1", "1,0x,DiskRead", "-1,1,DiskRead",
		"1,1 ,DiskRead", "1,4611686018427387904,DiskRead", "1,1,DiskWrite,0x0x1"} {
		slow, err := parseRow([]byte(text))
		quick, usual := usualRow([]byte(text))
		if usual && (err != nil || quick != slow) {
			t.Errorf("%q: %+v, but %+v, %v", text, quick, slow, err)
		}
	}
	if _, usual := usualRow([]byte("15,0x1000,DiskRead,0x0")); !usual {
		t.Error("a plain row is not read as usual")
	}
}

func FuzzTrace(f *testing.F) {
	f.Add("5000,1000,DiskRead\n6000,200,DiskWrite,1f0000\n")
	f.Add("1,0xffffffffffffffff,DiskRead\n-1,1,read\n\n# x\n,,,\n")
	f.Fuzz(func(t *testing.T, text string) {
		last := time.Duration(0)
		for r, err := range ordered(rows(strings.NewReader(text), new(Report))) {
			if err != nil {
				return
			}
			if r.At < last || r.Size < 0 || r.Offset < -1 {
				t.Fatalf("%+v after %v", r, last)
			}
			last = r.At
		}
	})
}
