"""Conformance kits for plug-ins, and fakes."""
