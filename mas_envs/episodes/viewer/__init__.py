"""The one episode viewer: conversations as a person reads them, and why each was graded so.

    >>> html = page("My run", {"before": episodes, "after": later})
    >>> Path("episodes.html").write_text(html, encoding="utf-8")

`conversations` turns episodes into plain JSON values (a row for the list, the conversation
itself); `single_file` puts a sample of them into one HTML file, `folder` any number of them into a
folder. `html_page` makes the page of both from `page.html`, `page.css`, `text.js` and `page.js`; in
a folder, `chunks.js` loads the conversations.
"""

from mas_envs.episodes.viewer.folder import ViewerFolder
from mas_envs.episodes.viewer.single_file import page

__all__ = ["ViewerFolder", "page"]
