"""The one episode viewer: conversations as a person reads them, and why each was graded so.

    >>> html = page("My run", {"before": episodes, "after": later})
    >>> Path("episodes.html").write_text(html, encoding="utf-8")

`conversations` turns episodes into plain JSON values (a row for the list, the conversation
itself); `single_file` puts a sample of them into one HTML file; `page.html`, `page.css` and
`page.js` are what the browser gets.
"""

from mas_envs.episodes.viewer.single_file import page

__all__ = ["page"]
