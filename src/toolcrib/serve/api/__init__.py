"""The HTTP API: routes, their handlers, and the document that describes them."""
