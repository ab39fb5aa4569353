"""Somebody else's names over ours: programs written for another tool layer run after one changed import."""
