"""The server, as the bundle's manifest names it; its settings come from the environment."""

from retrieval_core_mcp.__main__ import main

if __name__ == "__main__":
    main()
