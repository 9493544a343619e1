"""Numbers to pages: tables, figures, comparisons, reports."""
