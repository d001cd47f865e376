"""Policies by name, as command lines take them.

random                 random text: `RandomPolicy`
human                  you, at the terminal: `HumanPolicy`
http://host/v1#MODEL   an OpenAI-compatible server; without #MODEL the only model it has
module:name            a function of a `Request`, or a policy, of yours
verifier=human,random  one of these for a role or an agent id, and one for all others

A comma always separates; in a URL write it as %2C.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from mas_envs.by_name import by_name
from mas_envs.errors import FEW, UnknownName, UserError
from mas_envs.policies.base import Policy
from mas_envs.policies.http import HTTPPolicy
from mas_envs.policies.human import HumanPolicy
from mas_envs.policies.random_text import RandomPolicy
from mas_envs.policies.scripted import ScriptedPolicy

NAMED: dict[str, Callable[[], Policy]] = {"random": RandomPolicy, "human": HumanPolicy}
FORMS = (*NAMED, "http://host/v1#MODEL", "module:name")
_PAIR = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def policy_named(text: str, *, api_key: str | None = None) -> Policy:
    """The policy that `text` names, see above; `api_key` is for servers.

    Raises `UnknownName`, or `UserError` for a server that does not say which model, or a module
    without that name.
    """
    if text in NAMED:
        return NAMED[text]()
    if text.startswith(("http://", "https://")):
        url, _, model = text.partition("#")
        return HTTPPolicy(url, model or _only_model(url, api_key), api_key=api_key)
    if ":" in text:
        return _of_module(text)
    raise UnknownName("policy", text, FORMS)


def _of_module(name: str) -> Policy:
    try:
        found = by_name(name)
    except UserError as error:
        raise UserError(f"policy {error}; write it as module:name") from None
    if isinstance(found, type) or not (callable(found) or isinstance(found, Policy)):
        raise UserError(f"policy {name!r} is {found!r:.80}; name a function of a Request, or an "
                        "object with act(request)")  # fmt: skip
    return found if isinstance(found, Policy) else ScriptedPolicy(found, model=name)


def _only_model(url: str, api_key: str | None) -> str:
    """The id of the one model that a server has. Raises `UserError`."""
    import httpx  # here: a tenth of a second

    from retrievers.http.connections import trusted

    fix = f"write {url}#MODEL"
    try:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        reply = httpx.get(
            url.rstrip("/") + "/models", headers=headers, timeout=10.0, verify=trusted()
        )
        reply.raise_for_status()
        models = [str(model["id"]) for model in reply.json()["data"]]
    except (httpx.HTTPError, httpx.InvalidURL, LookupError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{url} does not say which models it has ({reason}); {fix}") from None
    if len(models) != 1:
        listed = ", ".join(models[:FEW]) + (", …" if len(models) > FEW else "")
        raise UserError(f"{url} has {len(models)} models ({listed or 'none'}); {fix}")
    return models[0]


def targets_named(texts: Iterable[str]) -> dict[str, str]:
    """Role or agent id → name of its policy; under "" the one for all others.

    Raises `UserError` where one of them is given two, or none behind its "=".
    """
    named: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        pair = _PAIR.fullmatch(part)
        whose, target = (pair[1], pair[2].strip()) if pair else ("", part)
        if not target:
            raise UserError(f"unknown policy '' in {part!r}; write POLICY, or role=POLICY")
        if whose in named:
            all_or_one = f"role {whose!r}" if whose else "all roles"
            raise UserError(f"two policies for {all_or_one}: {named[whose]!r} and {target!r}")
        named[whose] = target
    return named


def policies_named(
    texts: Sequence[str],
    roles: Iterable[str],
    agents: Iterable[str] = (),
    *,
    api_key: str | None = None,
) -> dict[str, Policy]:
    """Role → policy for all `roles`, and for each of the `agents` (ids) that has its own.

    Who is not named gets the policy that is given without a role, else "random". Those with equal
    names share one policy. Raises as `policy_named` and `targets_named` do, and `UnknownName` for
    a policy of nobody.
    """
    roles = list(roles)
    named = targets_named(texts)
    everybody = named.pop("", "random")
    known = {*roles, *agents}
    for whose in named:
        if whose not in known:
            raise UnknownName("role or agent", whose, known, where="policies")
    targets = {role: everybody for role in roles} | named
    made = {target: policy_named(target, api_key=api_key) for target in set(targets.values())}
    return {whose: made[target] for whose, target in targets.items()}
