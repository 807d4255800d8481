"""`python -m toolkit`: the command line, for where `toolkit` is not on the PATH."""

from toolkit.cli.start import main

if __name__ == "__main__":
    main()
