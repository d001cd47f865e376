"""A retrieval server: `serve` speaks the contract of Search-R1's and DrMAS's servers.

    POST /retrieve  {"queries": ["…", …], "topk": 3, "return_scores": true}  or  {"query": "…"}
      200           {"result": [[{"document": {"id", "contents", "title", "text"}, "score": 1.5},
                                 …], …]}: one list per query, also for one query;
                    the bare documents unless return_scores is true
      400           the body is no JSON           404, 405  another path or method
      413, 431      body or headers too long      422       a field is wrong; the answer names it
      429, 503      too much to do; loading, stopping or retriever down: try again (Retry-After)
    GET /health     200 {"status": "ready", …, "waiting": queries} or 503 {"status": "loading"}

Other answers than 200 are {"detail": "one line"}. topk is 3 unless given. Keys that mean nothing
here are ignored, but not another name of topk alone: 422. The header X-Index-Digest, "digest" of
/health, tells of two servers whether they give the same answers (see `facts.describe`).
"""

from retrievers.server.limits import Limits
from retrievers.server.serving import serve

__all__ = ["Limits", "serve"]
