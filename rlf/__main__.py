"""`python -m rlf` is the command `rlf`."""

from rlf.cli.start import main

if __name__ == "__main__":
    main()
