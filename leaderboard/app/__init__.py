"""The server: a JSON API with OpenAPI, and pages.

>>> app = make_app(Settings(folder=Path("board")))    # an ASGI application, for any server
"""

from leaderboard.app.application import make_app

__all__ = ["make_app"]
