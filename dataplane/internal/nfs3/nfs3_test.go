package nfs3

import (
	"testing"

	"hotbed/dataplane/internal/sunrpc"
)

func described(procedure uint32, arguments func(*sunrpc.Encoder)) Operation {
	e := sunrpc.AppendCall(nil, 1, Program, Version, procedure)
	arguments(&e)
	c, err := sunrpc.ParseCall(e.Bytes[4:])
	if err != nil {
		panic(err)
	}
	return Describe(c)
}

func TestReadsAndWritesAreDescribed(t *testing.T) {
	op := described(ProcRead, func(e *sunrpc.Encoder) {
		e.Opaque([]byte("handle"))
		e.Uint64(1 << 33)
		e.Uint32(65536)
	})
	if op.Kind != Read || string(op.Handle) != "handle" || op.Offset != 1<<33 || op.Count != 65536 ||
		op.Reply < 65536 {
		t.Errorf("a read is %+v", op)
	}
	op = described(ProcWrite, func(e *sunrpc.Encoder) {
		e.Opaque([]byte("handle"))
		e.Uint64(4096)
		e.Uint32(5)
		e.Uint32(FileSync)
		e.Opaque([]byte("12345"))
	})
	if op.Kind != Write || op.Offset != 4096 || op.Count != 5 {
		t.Errorf("a write is %+v", op)
	}
}

func TestAWriteCountsWhatItCarries(t *testing.T) {
	op := described(ProcWrite, func(e *sunrpc.Encoder) {
		e.Opaque([]byte("handle"))
		e.Uint64(0)
		e.Uint32(1 << 31)
		e.Uint32(FileSync)
		e.Opaque([]byte("1234"))
	})
	if op.Count != 4 {
		t.Errorf("a write of 4 bytes that claims more counts %d", op.Count)
	}
}

func TestWhatCannotBeReadIsOther(t *testing.T) {
	if op := described(ProcRead, func(e *sunrpc.Encoder) { e.Uint32(9) }); op.Kind != Other {
		t.Errorf("a read that is cut off is %+v", op)
	}
	if op := Describe(sunrpc.Call{Program: Program, Version: 4, Procedure: 1}); op.Kind != Other {
		t.Errorf("version 4 is %+v", op)
	}
	if op := Describe(sunrpc.Call{Program: Program, Version: 3, Procedure: ProcRead,
		Flavor: sunrpc.AuthGSS}); op.Kind != Other {
		t.Errorf("encrypted arguments are %+v", op)
	}
}

func TestListsTellHowLongTheirReplyMayBe(t *testing.T) {
	op := described(ProcReaddirplus, func(e *sunrpc.Encoder) {
		e.Opaque([]byte("handle"))
		e.Uint64(0)
		e.Uint64(0)
		e.Uint32(512)
		e.Uint32(300_000)
	})
	if op.Kind != Other || op.Reply < 300_000 {
		t.Errorf("a list is %+v", op)
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add(uint32(ProcRead), []byte("\x00\x00\x00\x04abcd\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x10\x00"))
	f.Add(uint32(ProcWrite), []byte("\x00\x00\x00\x04abcd\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x01"+
		"\x00\x00\x00\x02\x00\x00\x00\x01x\x00\x00\x00"))
	f.Add(uint32(ProcReaddirplus), []byte("\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, procedure uint32, arguments []byte) {
		op := Describe(sunrpc.Call{Program: Program, Version: Version, Procedure: procedure,
			Arguments: arguments})
		if op.Kind == Write && int(op.Count) > len(arguments) {
			t.Fatalf("a write of %d bytes in %d bytes of arguments", op.Count, len(arguments))
		}
		if op.Reply < 0 || len(op.Handle) > MaxHandle || (op.Kind == Other && op.Handle != nil) {
			t.Fatalf("%+v", op)
		}
	})
}
