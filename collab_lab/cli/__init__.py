"""``fairseq-collab COMMAND``: one thin module for each command; only these modules parse options.

``build_parser()``, if a command has options, defines them.  ``main(argv)`` runs the command and
returns its exit status, or raises a UserError, which the dispatcher prints in one line.  Slow
packages (torch, fairseq, pandas, matplotlib) are imported inside functions, so that ``--help`` and
wrong paths end at once.
"""
