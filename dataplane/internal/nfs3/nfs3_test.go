package nfs3

import (
	"reflect"
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

// request appends the arguments of a READ, or with data of a WRITE that claims count bytes.
func request(offset uint64, count uint32, data string) func(*sunrpc.Encoder) {
	return func(e *sunrpc.Encoder) {
		e.Opaque([]byte("handle"))
		e.Uint64(offset)
		e.Uint32(count)
		if data != "" {
			e.Uint32(FileSync)
			e.Opaque([]byte(data))
		}
	}
}

func TestCallsAreDescribed(t *testing.T) {
	handle := []byte("handle")
	list := func(e *sunrpc.Encoder) {
		e.Opaque(handle)
		e.Uint64(0)
		e.Uint64(0)
		e.Uint32(512)
		e.Uint32(300_000)
	}
	for name, c := range map[string]struct{ got, want Operation }{
		"a read":  {described(ProcRead, request(1<<33, 65536, "")), Operation{Read, handle, 1 << 33, 65536, 65536}},
		"a write": {described(ProcWrite, request(4096, 5, "12345")), Operation{Write, handle, 4096, 5, 0}},
		"a write that claims more than it carries": {described(ProcWrite, request(0, 1<<31, "1234")), Operation{Write, handle, 0, 4, 0}},
		"a list":                 {described(ProcReaddirplus, list), Operation{Reply: 300_000}},
		"a read that is cut off": {described(ProcRead, func(e *sunrpc.Encoder) { e.Uint32(9) }), Operation{}},
		"version 4":              {Describe(sunrpc.Call{Program: Program, Version: 4, Procedure: 1}), Operation{}},
		"encrypted arguments": {Describe(sunrpc.Call{Program: Program, Version: 3, Procedure: ProcRead,
			Flavor: sunrpc.AuthGSS}), Operation{Reply: 1 << 20}},
	} {
		least := c.want.Reply
		if c.want.Reply = c.got.Reply; !reflect.DeepEqual(c.got, c.want) || c.got.Reply < least {
			t.Errorf("%s is %+v", name, c.got)
		}
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
