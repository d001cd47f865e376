"""The leaderboard's pages, from records alone: tables, submissions, conversations, comparisons.

    >>> pages = Pages()
    >>> html = pages.board(board(records, "math"))

`board` makes a track's table with ranges of ranks, `reader` what may be shown of conversations,
`comparing` the paired comparison, `plots` the pictures; `render` has the pages as HTML, for a
server, and `site` writes them all into a folder that any host, or file://, can show.
"""
