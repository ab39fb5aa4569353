"""`hyperpocket.util`: schemas and models of functions."""
