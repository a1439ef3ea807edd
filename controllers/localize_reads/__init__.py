"""Reads from the nearest replica."""
