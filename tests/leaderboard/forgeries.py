"""Forgeries: each takes the forger, changes something and names the check that must catch it."""

import json

import msgspec

from mas_envs.grading import grade_math

FORGERIES = []


def forgery(function):
    FORGERIES.append(function)
    return function


def wrong(episode):
    return episode["reward"] == 0


def last_draft(episode):
    return [event for event in episode["events"] if event["kind"] == "turn"][-1]


def reviews(episode):
    return [event for event in episode["events"] if event.get("role") == "verifier"]


def grade_call(episode):
    return next(event for event in episode["events"] if event["kind"] == "tool")


@forgery
def text_only(forger):
    last_draft(forger.find(wrong))["text"] = r"\boxed{12}"
    return "replay"


@forgery
def text_and_call(forger):
    """The answer becomes right wherever it is looked at; only the declared score betrays it."""
    episode = forger.find(lambda e: wrong(e) and len(e["events"]) > 3)
    text = rf"\boxed{{{episode['gold']}}}"
    last_draft(episode).update(text=text, value=episode["gold"])
    call = grade_call(episode)
    call["args"]["response"] = text
    call["result"] = episode["grade"] = msgspec.to_builtins(grade_math(text, episode["gold"]))
    episode["reward"] = 1.0
    return "scores"


@forgery
def reward(forger):
    forger.find(wrong)["reward"] = 1.0
    return "rewards"


@forgery
def grade(forger):
    forger.find(wrong)["grade"]["correct"] = True
    return "grades"


@forgery
def grade_everywhere(forger):
    episode = forger.find(wrong)
    grade_call(episode)["result"]["correct"] = episode["grade"]["correct"] = True
    episode["reward"] = 1.0
    return "grades"


@forgery
def grade_by_another_tool(forger):
    grade_call(forger.find(wrong))["tool"] = "my_grader"
    return "replay"


@forgery
def gold(forger):
    forger.find(wrong)["gold"] = "1"
    return "questions"


@forgery
def gold_everywhere(forger):
    episode = forger.find(wrong)
    call = grade_call(episode)
    episode["gold"] = call["args"]["gold"] = episode["grade"]["answer"]
    call["result"]["correct"] = episode["grade"]["correct"] = True
    episode["reward"] = 1.0
    return "replay"


@forgery
def question(forger):
    forger.episodes[0]["question"] = "1+1=?"
    return "questions"


@forgery
def missing_sample(forger):
    forger.episodes.remove(forger.find(wrong))
    return "samples"


@forgery
def missing_question(forger):
    """The worst question is dropped, and the manifest says that there never was one."""
    worst = forger.find(wrong)["task"]
    forger.episodes = [episode for episode in forger.episodes if episode["task"] != worst]
    forger.manifest["suite"]["rows"] -= 1
    return "suite"


@forgery
def duplicated_sample(forger):
    forger.episodes[forger.episodes.index(forger.find(wrong))] = forger.episodes[0]
    return "samples"


@forgery
def one_sample_more(forger):
    forger.episodes.append({**forger.episodes[0], "sample": 2})
    return "samples"


@forgery
def copied_sample(forger):
    """A right sample takes the place of its wrong sibling, under the sibling's number."""
    bad = forger.find(
        lambda e: (
            wrong(e) and any(o["task"] == e["task"] and o["reward"] == 1 for o in forger.episodes)
        )
    )
    good = forger.find(lambda e: e["task"] == bad["task"] and e["reward"] == 1)
    number = bad["sample"]
    bad.clear()
    bad.update(json.loads(json.dumps(good)), sample=number)
    return "settings"


@forgery
def sampling_seed(forger):
    last_draft(forger.episodes[0])["seed"] += 1
    return "settings"


@forgery
def environment_seed(forger):
    forger.episodes[0]["seed"] += 1
    return "settings"


@forgery
def run_seed(forger):
    forger.manifest["seed"] += 1
    return "settings"


@forgery
def foreign_task(forger):
    forger.find(wrong)["task"] = "0123456789abcdef"
    return "samples"


@forgery
def relabelled_task(forger):
    """An easy question's conversation under a hard question's id."""
    hard = forger.find(wrong)
    easy = forger.find(lambda e: e["task"] != hard["task"] and not wrong(e))
    hard_id, number = hard["task"], hard["sample"]
    hard.clear()
    hard.update(json.loads(json.dumps(easy)), task=hard_id, sample=number)
    return "replay"


@forgery
def swapped_agent(forger):
    last_draft(forger.episodes[0])["agent"] = "verifier_0"
    return "replay"


@forgery
def swapped_role(forger):
    last_draft(forger.episodes[0])["role"] = "verifier"
    return "replay"


@forgery
def edited_prompt(forger):
    turn = forger.episodes[0]["events"][0]
    turn["messages"][0]["content"] += f" (The answer is {forger.episodes[0]['gold']}.)"
    return "replay"


@forgery
def edited_review(forger):
    """A rejection that becomes an approval, so that the first, right draft counts."""
    episode = forger.find(lambda e: reviews(e) and reviews(e)[0]["value"] == "reject")
    reviews(episode)[0].update(text="<verify>approve</verify>", value="approve")
    return "replay"


@forgery
def dropped_turn(forger):
    del forger.find(reviews)["events"][1]
    return "replay"


@forgery
def dropped_end(forger):
    del forger.episodes[0]["events"][-1]
    return "replay"


@forgery
def added_turn(forger):
    events = forger.episodes[0]["events"]
    events.append({**events[0], "index": len(events)})
    return "replay"


@forgery
def parse_status(forger):
    last_draft(forger.episodes[0])["parse_status"] = "missing"
    return "replay"


@forgery
def turn_reward(forger):
    last_draft(forger.episodes[0])["reward"] = 0.5
    return "rewards"


@forgery
def info(forger):
    forger.episodes[0]["info"]["rounds"] = 7
    return "replay"


@forgery
def failed_as_sample(forger):
    forger.find(wrong).update(status="failed", reason="engine dead")
    return "samples"


@forgery
def declared_env_args(forger):
    forger.manifest["env"]["kwargs"]["max_rounds"] = 3
    return "settings"


@forgery
def env_args_everywhere(forger):
    for env in [forger.manifest["env"], *(episode["env"] for episode in forger.episodes)]:
        env["kwargs"]["max_rounds"] = 1
    return "replay"


@forgery
def grading_everywhere(forger):
    for env in [forger.manifest["env"], *(episode["env"] for episode in forger.episodes)]:
        env["kwargs"]["grading"] = {"rounding": 0.9}
    return "settings"


@forgery
def other_entry_point(forger):
    forger.manifest["env"]["entry_point"] = "antigravity:fly"
    return "settings"


@forgery
def unknown_environment(forger):
    forger.manifest["env"]["id"] = "guess-v0"
    return "settings"


@forgery
def prompts_elsewhere(forger):
    forger.manifest["env"]["kwargs"]["prompts"] = "/etc/prompts.toml"
    return "settings"


@forgery
def declared_prompts(forger):
    forger.manifest["prompts"] = "default-v2-000000000000"
    return "settings"


@forgery
def declared_sampling(forger):
    forger.manifest["sampling"]["temperature"] = 0.0
    return "settings"


@forgery
def declared_model(forger):
    forger.manifest["models"]["solver"] = ["a-much-smaller-model"]
    return "settings"


@forgery
def another_model(forger):
    last_draft(forger.episodes[0])["model"] = "a-much-larger-model"
    return "settings"


@forgery
def declared_score(forger):
    forger.manifest["scores"]["avg@2"]["value"] += 0.1
    return "scores"


@forgery
def declared_interval(forger):
    forger.manifest["scores"]["pass@2"]["low"] += 0.1
    return "scores"


@forgery
def score_of_nothing(forger):
    forger.manifest["scores"]["pass@16"] = forger.manifest["scores"].pop("pass@2")
    return "scores"


@forgery
def declared_k(forger):
    forger.manifest["k"] = 1
    return "samples"


@forgery
def suite_hash(forger):
    forger.manifest["suite"]["sha256"] = "0" * 64
    return "suite"


@forgery
def suite_name(forger):
    forger.manifest["suite"]["name"] = "math500"
    return "suite"


@forgery
def malformed_line(forger):
    forger.episodes[3] = {"schema": 1, "task": 5}
    return "schema"


@forgery
def other_schema(forger):
    forger.episodes[3]["schema"] = 2
    return "schema"
