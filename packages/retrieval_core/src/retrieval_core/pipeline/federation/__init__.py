"""A federation: several indexes that are searched as one."""
