"""Tables, figures and pages from the results of runs.

collect              reads run folders into one data frame
table, table_text    a table with a row per model; its text as Markdown, CSV or LaTeX
figure, render       figures and numbers in one style for all pages
heads_page           writes the page of ``fairseq-collab heads``
"""
