"""Open-loop writer: writes to given placement groups at fixed rates, independent of the store."""
