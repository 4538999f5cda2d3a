"""A script that looks at an index before and after it becomes read-only."""

LOOK_AT_READ_ONLY = """
look()  # loads all modules, which nobody may not read everywhere
os.chmod("index.db", 0o444)
os.chmod(".", 0o555)
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
look()
"""
"""The end of a script in the folder of ``index.db`` that defines ``look()``. At the end nobody may write there."""
