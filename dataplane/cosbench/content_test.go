package cosbench

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

func TestBody(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	p := newPool(random)
	for _, size := range []int64{0, 1, 39, 40, 41, 4096, poolSize - 1, poolSize, 2*poolSize + 77} {
		for _, hashed := range []bool{false, true} {
			var b body
			b.reset(p, random, &operationPlan{hashCheck: hashed}, size)
			var sent bytes.Buffer
			if n, err := b.WriteTo(&sent); n != size || err != nil {
				t.Fatalf("%d bytes: sent %d, %v", size, n, err)
			}
			if _, err := b.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			if size <= 5000 { // it reads byte by byte
				if err := iotest.TestReader(&b, sent.Bytes()); err != nil {
					t.Fatalf("%d bytes, hashed %v: %v", size, hashed, err)
				}
			} else if read, err := io.ReadAll(&b); err != nil || !bytes.Equal(read, sent.Bytes()) {
				t.Fatalf("%d bytes, hashed %v: read others than sent, %v", size, hashed, err)
			}
			for _, from := range []io.Reader{bytes.NewReader(sent.Bytes()), iotest.HalfReader(bytes.NewReader(sent.Bytes()))} {
				if n, err := drain(from, make([]byte, 5000), true); n != size || err != nil {
					t.Fatalf("%d bytes, hashed %v: read %d, %v", size, hashed, n, err)
				}
			}
			if hashed && size > hashLen {
				broken := bytes.Clone(sent.Bytes())
				broken[random.Int64N(size-hashLen)] ^= 1
				if _, err := drain(bytes.NewReader(broken), make([]byte, 5000), true); !errors.Is(err, errHash) {
					t.Fatalf("%d bytes, one of them wrong: %v", size, err)
				}
			}
		}
	}
	var b body
	b.reset(p, random, &operationPlan{zero: true}, 100)
	if content, err := io.ReadAll(&b); err != nil || !bytes.Equal(content, make([]byte, 100)) {
		t.Errorf("content=zero: %v %v", content, err)
	}
}
