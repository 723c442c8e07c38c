"""`python -m kvbind`: the command line."""

from kvbind.cli import main

if __name__ == "__main__":
    main(prog_name="kvbind")
