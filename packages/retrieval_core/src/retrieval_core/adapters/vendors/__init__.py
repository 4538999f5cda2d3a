"""Connections to vendors, and parsing of HTTP answers, shared by several adapters."""
