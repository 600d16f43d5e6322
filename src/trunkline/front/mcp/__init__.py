"""Clients of the protocol come in: both eras, over streamable HTTP and HTTP+SSE."""
