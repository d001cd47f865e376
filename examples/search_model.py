"""Teaches the small model that comes along to play search-v0, by imitation: a minute or two.

    python search_model.py             # writes the checkpoint folder search-model/
    mas-train run search.yaml          # trains a team that begins with it

The demo's model knows sums only, and reinforcement learning cannot begin where no reward is ever
seen. Here scripted agents, who know the answers, play episodes, and the model learns their turns:
when to search and when to answer, and the form of both. What to search for is beyond it: it draws
one of a few words. A pretrained model (Qwen/Qwen3-0.6B) needs none of this.
"""

import asyncio
import random
import sys
from pathlib import Path

import torch

import mas_envs
from mas_envs import ScriptedPolicy
from mas_envs.console import progress
from mas_train.demo import tiny_model
from mas_train.demo.warm_start import encode
from mas_train.engines.hf_model import quiet

STEPS, ROWS = 300, 16


def demonstrations():
    """(messages, text) of every turn that the scripted team takes on tinyworld's questions."""
    tasks = mas_envs.load_tasks("tinyworld", split="train", hops=[1])
    task_of = {task.question: task for task in tasks}

    def asked(request):
        return task_of[request.messages[-1].content.split("\n")[0]]

    def answer(request):
        gold = asked(request).answer
        return f"<answer>{gold if isinstance(gold, str) else gold[0]}</answer>"

    def verify(request):
        return f"<verify>{'yes' if '[1]' in request.messages[-1].content else 'no'}</verify>"

    def search(request):  # "Zzz" finds nothing: what to do then has to be seen, too
        return f"<search>{('Zzz', 'born', 'river', 'museum', 'school')[request.seed % 5]}</search>"

    players = {"verifier": verify, "search": search, "answer": answer}
    team = {role: ScriptedPolicy(player) for role, player in players.items()}
    env = mas_envs.make("search-v0", prompts="tiny", top_k=1, max_turns=3, force_answer=True)
    episodes = asyncio.run(mas_envs.collect(env, team, tasks))
    return [(turn.messages, turn.text) for episode in episodes for turn in episode.turns]


def main(out="search-model", steps=STEPS):
    """Cross-entropy on the texts of the turns, beginning with the demo's weights."""
    from transformers import AutoModelForCausalLM

    quiet()
    torch.set_num_threads(1)  # the fastest for so small a model
    turns, rng = demonstrations(), random.Random(0)
    tokenizer = tiny_model.build_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(tiny_model.WEIGHTS).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.1)
    with progress("imitation", steps, unit="steps") as bar:
        for _ in range(steps):
            ids, labels = encode(rng.sample(turns, ROWS), tokenizer)
            logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            bar.advance(1, note=f"loss {loss.item():.3f}")
    tiny_model.save(model.eval(), Path(out))
    print(f"a model to begin with: {out}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
