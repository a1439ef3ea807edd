"""Reads from random replicas."""
