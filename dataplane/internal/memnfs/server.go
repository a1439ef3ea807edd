package memnfs

import (
	"net"
	"sync"
	"time"

	"hotbed/dataplane/internal/nfs3"
	"hotbed/dataplane/internal/sunrpc"
)

// Server serves NFS and its mount protocol on one port. Close ends it, together with every connection.
type Server struct {
	FS *FS
	// Delay, when set, is how long a call waits before it is served. Calls then overtake each other.
	Delay func(sunrpc.Call) time.Duration
	// Hold, when set, is a channel for a call: the call is served when it is closed. Nil is at once.
	Hold func(sunrpc.Call) <-chan struct{}
	// Work is processor time that every call takes, as real servers' calls do.
	Work time.Duration
	// Fragment, when above 0, is the most bytes of a fragment of a reply.
	Fragment int

	listener net.Listener
	mutex    sync.Mutex
	conns    map[net.Conn]bool
	done     sync.WaitGroup
}

// Export is what MNT has to name.
const Export = "/"

// Listen begins to serve at an address.
func (s *Server) Listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s.listener, s.conns = listener, map[net.Conn]bool{}
	s.done.Go(s.accept)
	return nil
}

// Address is where it listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close ends it.
func (s *Server) Close() {
	_ = s.listener.Close()
	s.mutex.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
	s.mutex.Unlock()
	s.done.Wait()
}

// Connections is how many there are.
func (s *Server) Connections() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.conns)
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mutex.Lock()
		if s.conns == nil {
			_ = conn.Close()
		} else {
			s.conns[conn] = true
			s.done.Go(func() { s.serve(conn) })
		}
		s.mutex.Unlock()
	}
}

// serve answers the calls of a connection: those that came together at once, with one write.
func (s *Server) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.mutex.Lock()
		delete(s.conns, conn)
		s.mutex.Unlock()
	}()
	reader := sunrpc.Reader{Most: MaxTransfer + 4096}
	var out []byte
	var writing sync.Mutex
	for {
		n, err := conn.Read(reader.Space())
		if err != nil {
			return
		}
		reader.Filled(n)
		for {
			_, record, err := reader.Next()
			if err != nil {
				return
			}
			if record == nil {
				break
			}
			call, err := sunrpc.ParseCall(record)
			if err != nil {
				return
			}
			if s.Delay == nil && s.Hold == nil {
				out = s.answer(out, call)
				continue
			}
			call.Arguments = append([]byte(nil), call.Arguments...)
			s.later(call, func() {
				reply := s.answer(nil, call)
				writing.Lock()
				defer writing.Unlock()
				_, _ = conn.Write(reply)
			})
		}
		if len(out) > 0 {
			if _, err := conn.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
	}
}

// later serves a call when it may be.
func (s *Server) later(c sunrpc.Call, serve func()) {
	if s.Hold != nil {
		if held := s.Hold(c); held != nil {
			go func() {
				<-held
				serve()
			}()
			return
		}
	}
	delay := time.Duration(0)
	if s.Delay != nil {
		delay = s.Delay(c)
	}
	time.AfterFunc(delay, serve)
}

// answer appends the reply to a call.
func (s *Server) answer(out []byte, c sunrpc.Call) []byte {
	for began := time.Now(); s.Work > 0 && time.Since(began) < s.Work; {
		continue // a call keeps its processor busy
	}
	start := len(out)
	e := sunrpc.AppendReply(out, c.XID, sunrpc.Success)
	header := len(e.Bytes)
	state := uint32(sunrpc.ProgramUnavailable)
	switch {
	case c.Program == nfs3.Program && c.Version == nfs3.Version:
		state = s.FS.serve(c, &e)
	case c.Program == nfs3.MountProgram && c.Version == nfs3.MountVersion:
		state = mount(c, &e)
	case c.Program == nfs3.Program || c.Program == nfs3.MountProgram:
		state = sunrpc.ProgramMismatch
	}
	if state != sunrpc.Success {
		e.Bytes = e.Bytes[:header]
		e.Bytes[header-1] = byte(state)
		if state == sunrpc.ProgramMismatch {
			e.Uint32(3)
			e.Uint32(3)
		}
	}
	sunrpc.SealRecord(e.Bytes, start, 0)
	if s.Fragment > 0 {
		return append(out, sunrpc.Fragments(e.Bytes[start+4:], s.Fragment)...)
	}
	return e.Bytes
}

func mount(c sunrpc.Call, e *sunrpc.Encoder) uint32 {
	d := sunrpc.NewDecoder(c.Arguments)
	switch c.Procedure {
	case nfs3.MountNull, nfs3.MountUmnt, nfs3.MountUmntall:
	case nfs3.MountMnt:
		path := d.String(nfs3.MaxPath)
		if !d.OK() {
			return sunrpc.GarbageArguments
		}
		if path != Export {
			e.Uint32(uint32(nfs3.ErrNoEntry))
			return sunrpc.Success
		}
		e.Uint32(0)
		e.Opaque(handleOf(rootID))
		e.Uint32(1)
		e.Uint32(sunrpc.AuthUnix)
	case nfs3.MountExport:
		e.Bool(true)
		e.String(Export)
		e.Bool(false)
		e.Bool(false)
	default:
		return sunrpc.ProcedureUnavailable
	}
	return sunrpc.Success
}
