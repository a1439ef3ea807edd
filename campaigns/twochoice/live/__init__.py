"""The two-choice scheduler on real object servers, each on a disk of its own (section VI)."""
