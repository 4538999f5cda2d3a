"""Language models, one module a vendor."""
