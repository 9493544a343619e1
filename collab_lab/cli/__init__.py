"""``fairseq-collab COMMAND``: one thin module each; option parsers live here only.

``build_parser()``, where there is one, has a command's options; ``main(argv)`` runs it and returns
its exit status, or raises a UserError, which the dispatcher prints in one line.  Functions import
slow packages (torch, fairseq, pandas, matplotlib): ``--help`` and wrong paths end at once.
"""
