"""`mas-train run` of two agents whose models vLLM serves."""

import pytest
import yaml
from typer.testing import CliRunner

import mas_envs
from mas_train.cli import app
from mas_train.run.metrics_log import read_metrics


@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8.0}], ids=["whole", "adapters"])
def test_a_team_trains_on_vllm(tmp_path, monkeypatch, lora):
    from mas_train.engines import adapter, vllm

    pushed = []
    for kind in (vllm.VLLMEngine, adapter.Adapter):

        def load_weights(self, weights, version, *, push=kind.load_weights):
            pushed.append((self.name, version))
            push(self, weights, version)

        monkeypatch.setattr(kind, "load_weights", load_weights)
    engine = {"name": "vllm", "max_model_len": 512, "max_rows": 64}
    model = {"path": "mas-gym/demo", "optimizer": {"lr": 1e-3}, "engine": engine, "lora": lora}
    tree = {
        "run": {"name": "team", "dir": str(tmp_path), "threads": 1},
        "env": {"id": "math-v0", "args": {"max_rounds": 2}, "prompts": "tiny"},
        "agents": {"solver": {"model": "solver"}, "verifier": {"model": "verifier"}},
        "models": {"solver": model, "verifier": model},
        "rollout": {"group_size": 4, "prompts_per_step": 8, "max_tokens": 40},
        "train": {"steps": 3, "eval_every": 0, "checkpoint_every": 3},
    }
    file = tmp_path / "team.yaml"
    file.write_text(yaml.safe_dump(tree))
    done = CliRunner().invoke(app, ["run", str(file)])
    assert done.exit_code == 0, done.output
    # Each push is probed: a difference above the tolerance would have ended the run.
    assert pushed == [(name, step) for step in range(4) for name in ("solver", "verifier")]
    episodes = list(mas_envs.read_episodes(tmp_path / "team" / "episodes"))
    assert len(episodes) == 3 * 32 and all(one.status == "done" for one in episodes)
    for episode in episodes:
        assert {turn.versions for turn in episode.turns} == {((0, episode.step),)}
    for row in read_metrics(tmp_path / "team" / "metrics.jsonl"):
        for one in row["models"].values():
            assert 0 <= one["mismatch"] < 1e-4, "engine and learner disagree"
            assert one["grad_norm"] > 0 and one["skipped"] == 0
