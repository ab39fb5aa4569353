"""Fixtures and doubles for the tests of those who write tools."""
