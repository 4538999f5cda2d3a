"""Indexes: opened, built from their settings, filled and asked."""
