"""Trunkline: a self-hosted aggregator of MCP servers."""

__version__ = "0.1.0"
