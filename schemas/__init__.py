"""Models of Hotbed's files and records, and shared helpers."""
