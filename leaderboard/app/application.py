"""The ASGI application."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

import leaderboard.app.api as api
from leaderboard.app import problems
from leaderboard.app.limits import Limits
from leaderboard.app.uploads import Uploads, sweep
from leaderboard.passages import at_hand
from leaderboard.settings import Settings
from leaderboard.store import open_store
from leaderboard.worker import Worker

FORM = 2**16  # bytes of an upload's form besides the file
UPLOADS = ("/api/submissions", "/submit/")


def make_app(settings: Settings) -> FastAPI:
    """The leaderboard as an application: opens the store (migrating it), starts the workers.

    Its state has `store`, `settings`, `uploads` and `workers`. Raises what
    `open_store` and `at_hand` raise.
    """
    at_hand(settings.retrievers)  # what cannot be used is said now
    store = open_store(settings)
    sweep(settings.incoming, 2 * settings.verify_seconds + 3600)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workers = [Worker(store, settings) for _ in range(settings.workers)]
        for worker in workers:
            worker.start()
        app.state.workers = workers
        yield
        for worker in workers:
            await run_in_threadpool(worker.stop)
        store.database.close()

    app = FastAPI(
        title="mas-gym leaderboard",
        description=api.__doc__ or "",
        version="1",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # to where the request's Host says
        separate_input_output_schemas=False,
    )
    app.state.store, app.state.settings, app.state.workers = store, settings, []
    app.state.uploads = Uploads(store, settings)
    problems.install(app)
    app.include_router(api.router)
    if find_spec("leaderboard.app.pages") is not None:
        app.include_router(importlib.import_module("leaderboard.app.pages").router)
    app.add_middleware(
        Limits,
        requests_per_minute=settings.requests_per_minute,
        body_bytes=settings.body_bytes,
        idle_seconds=settings.idle_seconds,
        large=dict.fromkeys(UPLOADS, settings.upload_bytes + FORM),
        free=("/static/",),
    )
    return app
