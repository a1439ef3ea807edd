package web

const hex = "0123456789ABCDEF"

// AppendEscaped writes a name as a part of a path, or of a query: all but letters, digits and "-._~" as
// "%XX", as AWS's signature wants it. Slashes stand for themselves where keep says so.
func AppendEscaped(b []byte, name string, keep bool) []byte {
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~',
			keep && c == '/':
			b = append(b, c)
		default:
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}
