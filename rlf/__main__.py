"""`python -m rlf` is the command `rlf`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder: what lies in it must not replace a library, as it does not for `rlf`
    from rlf.cli.start import main

    main()
