"""Numbers to pages: tables, figures, comparisons, reports.

collect              run folders to one data frame
table, table_text    a row per model, with means and differences; as Markdown, CSV or LaTeX
figure, render       figures and numbers as all pages have them
heads_page           the page of ``fairseq-collab heads``
"""
