"""Tools over a socket or a pipe."""
