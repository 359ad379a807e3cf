"""`python -m rlf` is the command `rlf`."""

from rlf.cli.main import main

if __name__ == "__main__":
    main()
