package redirectlog

// Parts of the format, for tests.
const HeaderSize, SectorSize, BlockSize, MaxPayload = headerSize, sectorSize, blockSize, maxPayload

var (
	AppendPairs = appendPairs
	InFile      = inFile
)

// End returns the log's length in bytes, and the number of its frames.
func (j *Journal) End() (int64, uint64) { return j.end, j.number }

// LogIn returns the log in a file, without copies and padding.
func LogIn(file File) ([]byte, error) {
	s, _, err := load(file, "")
	if err != nil {
		return nil, err
	}
	found, err := s.scan(0)
	if err != nil {
		return nil, err
	}
	return found.log, nil
}

// Newer returns a log with the version changed.
func Newer(log []byte) []byte {
	h, _ := decodeHeader(log)
	h.version++
	return append(h.encode(), log[headerSize:]...)
}
