"""Stores under test."""
