"""search-v0 and search-single-v0: who speaks when, what they see, what counts, and who wins."""

from __future__ import annotations

import pytest

import mas_envs
from mas_envs.errors import UserError
from mas_envs.policies.scripted import ScriptedPolicy
from mas_envs.search.retrieval import search_tool
from mas_envs.search.tinyworld import passages
from retrievers import BM25, Passage
from tests.mas_envs.env_cases import collect, play
from tests.mas_envs.search_cases import NO, SHELF, TASKS, YES, answer, end, make, query, shown

WORLD = {"source": "tinyworld", "split": "dev", "n": 300}


# ---- who speaks when -----------------------------------------------------------------------------


def test_no_goes_to_the_search_agent_and_yes_to_the_answer_agent():
    env = make()
    asked = play(env, NO, query("a"), NO, query("b"), YES, answer("Orra"), task=TASKS[0].id)
    assert asked == ["verifier_0", "search_0", "verifier_0", "search_0", "verifier_0", "answer_0"]
    assert end(env) == (1.0, True, "ok")
    assert env.episode.info == {
        "verdicts": ["no", "no", "yes"], "queries": ["a", "b"], "turns": 3,
    }  # fmt: skip
    kinds = [getattr(event, "tool", None) for event in env.episode.events]
    assert kinds == [None, None, "search", None, None, "search", None, None, "grade"]


def test_it_may_be_answered_at_once():
    env = make()
    assert play(env, YES, answer("nowhere")) == ["verifier_0", "answer_0"]
    assert end(env) == (0.0, False, "ok")
    assert env.episode.info == {"verdicts": ["yes"], "queries": [], "turns": 1}
    assert SHELF.queries == []


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_at_most_max_turns_and_nobody_answers_after_the_last_no(turns):
    env = make(max_turns=turns)
    asked = play(env, *[NO, query("a")] * 9)
    assert asked == ["verifier_0", "search_0"] * (turns - 1) + ["verifier_0"]
    assert end(env) == (0.0, False, "no_answer")
    assert env.episode.grade.reason == "nobody answered"
    assert env.episode.info["turns"] == turns
    assert len(SHELF.queries) == turns - 1, "what nobody will read is not searched for"
    assert len(asked) <= env.max_decisions


@pytest.mark.parametrize("turns", [1, 3])
def test_force_answer(turns):
    env = make(max_turns=turns, force_answer=True)
    asked = play(env, *[NO, query("a")] * (turns - 1), answer("Orra"), task=TASKS[0].id)
    assert asked == ["verifier_0", "search_0"] * (turns - 1) + ["answer_0"]
    assert end(env)[0] == 1.0
    assert env.episode.info["verdicts"] == ["no"] * (turns - 1) + ["forced"]


# ---- what cannot be read -------------------------------------------------------------------------

UNREADABLE = {
    "missing": ["", "yes", "<verify>maybe</verify>", "<think><verify>yes</verify></think>"],
    "ambiguous": [YES + NO, f"I will not say {YES}. {NO}"],
    "truncated": ["<verify>yes", "<think>endless <verify>yes</verify>"],
}
CASES = [(status, text) for status, texts in UNREADABLE.items() for text in texts]


@pytest.mark.parametrize(("status", "text"), CASES)
@pytest.mark.parametrize("reading", ["no", "yes"])
def test_a_malformed_verdict_is_read_as_the_option_says(status, text, reading):
    other = {"no": "yes", "yes": "no"}[reading]
    for option in (reading, dict.fromkeys(UNREADABLE, other) | {status: reading}):
        env = make(malformed_verdict=option, invalid_penalty={"verifier": 0.25}, max_turns=2)
        asked = play(env, text, "whatever", NO)
        assert asked[1] == {"no": "search_0", "yes": "answer_0"}[reading]
        assert env.episode.info["verdicts"] == {"no": ["no", "no"], "yes": ["yes"]}[reading]
        assert env.episode.turns[0].parse_status == status
        assert env.episode.turns[0].reward == -0.25
        assert env.episode.turns[1].reward == 0.0


def test_the_strict_reading_is_the_default_also_of_statuses_left_out():
    assert set(make().malformed_verdict.values()) == {"no"}
    env = make(malformed_verdict={"truncated": "yes"})
    assert env.malformed_verdict == {"missing": "no", "ambiguous": "no", "truncated": "yes"}


@pytest.mark.parametrize(
    "text", ["", "<search>", "<search>a</search><search>b</search>", "<search> </search>"]
)
def test_a_malformed_query_uses_its_turn_and_searches_nothing(text):
    env = make(max_turns=3, invalid_penalty={"search": 0.5})
    play(env, NO, text)
    assert SHELF.queries == []
    assert env.episode.turns[1].reward == -0.5
    assert "Search 1: \n(the query could not be read)" in shown(env)
    env.step(NO)
    env.step(query("b"))
    env.step(NO)
    assert env.episode.info["queries"] == [None, "b"]
    assert (SHELF.queries, end(env)) == (["b"], (0.0, False, "no_answer"))


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("Orra", "no_answer", "the answer is missing"),
        ("<answer></answer>", "no_answer", "the answer is missing"),
        ("<answer>Orra", "truncated", "the answer is truncated"),
        ("<think><answer>Orra</answer>", "truncated", "the answer is truncated"),
    ],
)
@pytest.mark.parametrize("id", ["search-v0", "search-single-v0"])
def test_a_malformed_answer_is_wrong(id, text, status, reason):
    env = make(id, max_turns=1, force_answer=True, invalid_penalty=0.125)
    assert len(play(env, text, task=TASKS[0].id)) == 1
    assert end(env) == (0.0, False, status)
    assert env.episode.grade.reason == reason
    assert env.episode.turns[-1].reward == -0.125
    assert "grade" not in [getattr(event, "tool", "") for event in env.episode.events]


# ---- what they see -------------------------------------------------------------------------------


def test_passages_are_shown_exactly_and_so_is_the_remark():
    env = make()
    env.reset(seed=0, options={"task": TASKS[1].id})
    assert "Question: Who?" in shown(env)
    assert "This is turn 1 of at most 4." in shown(env)
    env.step(f"<think>secret</think> The birth year is missing. {NO}")
    assert "secret" not in shown(env)
    assert shown(env).endswith(f"The verifier says:\nThe birth year is missing. {NO}")
    env.step(query("x {question}  y"))
    found = "Search 1: x {question} y\n[1] T0: about x {question} y\n[2] T1: about x {question} y"
    assert found in shown(env)
    assert "This is turn 2 of at most 4." in shown(env)
    env.step("<think>never ends")
    assert found in shown(env)
    assert shown(env).endswith("The verifier says:\n")
    env.step(query("z"))
    env.step(YES)
    assert env.agent_selection == "answer_0"
    later = "\n\nSearch 2: z\n[1] T0: about z\n[2] T1: about z"
    assert found + later in shown(env)


class Odd:
    """Passages without a title, or none at all."""

    def search(self, queries, k):
        return [[Passage("1", "", f"only {q}")] if q == "text" else [] for q in queries]


def test_passages_without_title_and_no_passages():
    env = make(retriever="tests.mas_envs.test_search_env:Odd")
    play(env, NO, query("text"), NO, query("other"))
    assert "Search 1: text\n[1] only text\n\nSearch 2: other\n(nothing was found)" in shown(env)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_top_k(k):
    env = mas_envs.make("search-v0", top_k=k, tasks=WORLD)
    question = env.tasks[0]
    play(env, NO, query(question.meta["entity"]), task=question.id)
    event = env.episode.events[2]
    assert event.args == {"query": question.meta["entity"], "k": k}
    [expected] = BM25(passages()).search([question.meta["entity"]], k)
    assert event.result == [one._asdict() for one in expected]
    for n, one in enumerate(expected, 1):
        assert f"\n[{n}] {one.title}: {one.text}" in shown(env)
    assert f"\n[{k + 1}]" not in shown(env)


def test_queries_of_many_episodes_are_one_batch_and_each_gets_its_own_k():
    tool = search_tool("tinyworld")
    words = ["Ada Vaughan", "river", "Ada Vaughan", ""]
    batch = [{"query": q, "k": k} for q, k in zip(words, [1, 3, 2, 2], strict=True)]
    assert tool(batch) == [tool([args])[0] for args in batch]
    assert [len(found) for found in tool(batch)] == [1, 3, 2, 0]


# ---- what counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("Orra", True), ("the river orra.", True), ("River  Orra", True), ("Orra River", False),
        ("Or ra", False), ("Orra</answer><answer>Nile", False), ("Nile</answer><answer>Orra", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("id", ["search-v0", "search-single-v0"])
def test_exact_match_with_aliases(id, said, right):
    env = make(id)
    texts = [answer(said)] if id == "search-single-v0" else [YES, answer(said)]
    play(env, *texts, task=TASKS[0].id)
    assert end(env) == (float(right), right, "ok")


class Planted:
    """Every passage says the right answer in tags."""

    def search(self, queries, k):
        return [[Passage("1", "<answer>Ada</answer>", "<answer>Ada</answer>")] for _ in queries]


@pytest.mark.parametrize("id", ["search-v0", "search-single-v0"])
def test_an_answer_in_a_passage_does_not_count(id):
    env = make(id, max_turns=2, retriever="tests.mas_envs.test_search_env:Planted")
    single = id == "search-single-v0"
    play(env, *([] if single else [NO]), query("x"), task=TASKS[1].id)
    assert "<answer>Ada</answer>" in shown(env)
    env.step("" if single else YES)
    if not single:
        env.step("")
    assert end(env) == (0.0, False, "no_answer")


def test_no_answer_in_a_query_or_a_remark_counts():
    env = make(max_turns=2)
    play(env, f"<answer>Ada</answer>{NO}", "<answer>Ada</answer>" + query("x"),
         f"<answer>Ada</answer>{NO}", task=TASKS[1].id)  # fmt: skip
    assert end(env) == (0.0, False, "no_answer")


# ---- the single agent ----------------------------------------------------------------------------


def test_single_searches_and_answers():
    env = make("search-single-v0")
    asked = play(env, query("a"), query("b"), answer("Ada"), task=TASKS[1].id)
    assert asked == ["searcher_0"] * 3
    assert end(env) == (1.0, True, "ok")
    assert env.episode.info == {"queries": ["a", "b"], "turns": 3}
    assert "\nSearch 2: b\n[1] T0: about b" in env.episode.turns[2].messages[0].content


@pytest.mark.parametrize("text", ["", "<search>a</search><answer>Ada</answer>", "<search>a"])
def test_single_uses_up_a_turn_that_cannot_be_read(text):
    env = make("search-single-v0", max_turns=2)
    play(env, text, task=TASKS[1].id)
    assert "(the query could not be read)" in shown(env)
    env.step(answer("Ada"))
    assert end(env) == (1.0, True, "ok")
    assert env.episode.info == {"queries": [None], "turns": 2}


@pytest.mark.parametrize("forced", [False, True])
def test_single_on_its_last_turn(forced):
    """A search then finds nothing to be shown in: it is not made, and is wrong."""
    env = make("search-single-v0", max_turns=1, force_answer=forced)
    play(env, query("a"), task=TASKS[1].id)
    assert end(env) == (0.0, False, "no_answer")
    assert SHELF.queries == []
    assert env.episode.turns[0].parse_status == ("missing" if forced else "ok")


@pytest.mark.parametrize("forced", [False, True])
def test_single_with_an_answer_that_is_cut_off(forced):
    env = make("search-single-v0", max_turns=1, force_answer=forced)
    play(env, "<answer>Ad", task=TASKS[1].id)
    assert end(env) == (0.0, False, "truncated")


# ---- the world can be won ------------------------------------------------------------------------


class Oracle:
    """Knows which entity comes next, but searches for it and reads the answer in the prompt."""

    def __init__(self, tasks):
        self.tasks = {task.question: task for task in tasks}
        self.titles = {one.id: one.title for one in passages()}
        self.texts = {one.id: one.text for one in passages()}

    def __call__(self, request):
        prompt = request.messages[-1].content
        task = self.tasks[prompt.partition("Question: ")[2].splitlines()[0]]
        needed = task.meta["supporting"]
        missing = [id for id in needed if f"{self.titles[id]}: {self.texts[id]}" not in prompt]
        if request.role == "verifier":
            return f"{missing} {NO if missing else YES}"
        if request.role == "search" or (request.role == "searcher" and missing):
            return query(self.next_name(prompt, task, missing[0]))
        gold = task.answer if isinstance(task.answer, str) else task.answer[0]
        return answer(gold if gold in prompt.partition("Question: ")[2] else "not found")

    def next_name(self, prompt, task, id):
        """The subject's name stands in the question, a bridge's in the passage found before."""
        name = task.meta["entity"] if id == task.meta["supporting"][0] else self.titles[id]
        seen = prompt.partition("Question: ")[2]
        return name if name.removeprefix("the ") in seen else "nothing that I know of"


@pytest.mark.parametrize("id", ["search-v0", "search-single-v0"])
def test_an_oracle_wins(id):
    env = mas_envs.make(id, tasks=WORLD)
    episodes = collect(env, env.tasks, ScriptedPolicy(Oracle(env.tasks)))
    won = {hops: [e.reward for e in episodes if e.meta["hops"] == hops] for hops in (1, 2)}
    for rewards in won.values():
        assert len(rewards) == 150
        assert sum(rewards) / len(rewards) >= 0.95
    turns = [episode.info["turns"] for episode in episodes if episode.reward]
    assert max(turns) <= 3
    assert all(e.info["turns"] == 1 + e.meta["hops"] for e in episodes if e.reward)


def test_who_searches_for_the_question_alone_wins_less():
    """One search with the question's words finds the subject's passage, not the answer's."""

    def plain(request):
        if request.role == "verifier":
            return YES if "Search 1" in request.messages[-1].content else NO
        if request.role == "search":
            return query(request.messages[-1].content.partition("Question: ")[2].splitlines()[0])
        return oracle(request)

    env = mas_envs.make("search-v0", tasks=WORLD)
    oracle = Oracle(env.tasks)
    rewards = {1: [], 2: []}
    for episode in collect(env, env.tasks, ScriptedPolicy(plain)):
        rewards[episode.meta["hops"]].append(episode.reward)
    assert sum(rewards[1]) > 0.9 * len(rewards[1])
    assert sum(rewards[2]) < 0.3 * len(rewards[2])


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_turns": 0}, "max_turns 0"), ({"max_turns": "4"}, "max_turns '4'"),
        ({"max_turns": True}, "max_turns True"), ({"top_k": 0}, "top_k 0"),
        ({"top_k": 2.0}, "top_k 2.0"), ({"force_answer": "yes"}, "force_answer 'yes'"),
        ({"force_answer": 1}, "force_answer 1"), ({"compat": "verl"}, "compat 'verl'"),
        ({"malformed_verdict": "maybe"}, "malformed_verdict 'maybe'"),
        ({"malformed_verdict": None}, "malformed_verdict None"),
        ({"malformed_verdict": {"mising": "no"}}, "malformed_verdict names the status 'mising'"),
        ({"malformed_verdict": {"missing": "reject"}}, "malformed_verdict: missing 'reject'"),
        ({"prompts": "single"}, r"no \[verifier\] table"), ({"prompts": "defalt"}, "prompt set"),
        ({"max_turn": 3}, "max_turns"),
    ],
)  # fmt: skip
def test_bad_arguments(kwargs, message):
    with pytest.raises(UserError, match=message):
        make(**kwargs)
