"""Recipes with something changed anywhere: they load, or one message says what is wrong."""

from __future__ import annotations

import copy
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_envs.errors import UserError
from mas_envs.yaml_tree import MAX_VALUES, read_tree
from mas_train.config import resolve
from mas_train.demo.run import CONFIG
from mas_train.recipes import recipes

TREES = {
    name: yaml.safe_load(path.read_text()) for name, path in {"demo": CONFIG, **recipes()}.items()
}
FREE = re.compile(
    r"(about|env\.args|tasks\.(train|dev)|models\.[^.]+\.template|train\.wandb)(\.|$)"
)
"""Sections whose keys are not ours to know."""

values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(
        ["null", "1e400", "auto", "vllm", "http", "fake", "ppo", "constant", "k3", "~"]
    ),
    st.lists(st.integers(-2, 2), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(-2, 2), max_size=2),
)


def paths(tree, above=()):
    for key, value in tree.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


def parent_of(tree, path):
    for key in path[:-1]:
        tree = tree[key]
    return tree


@st.composite
def changed(draw):
    """(tree, path of the change, what was done)."""
    name = draw(st.sampled_from(sorted(TREES)))
    tree = copy.deepcopy(TREES[name] if draw(st.booleans()) else full(name))
    path = draw(st.sampled_from(list(paths(tree))))
    what = draw(st.sampled_from(["replaced", "removed", "renamed", "added"]))
    section = parent_of(tree, path)
    if what == "replaced":
        section[path[-1]] = draw(values)
    elif what == "removed":
        del section[path[-1]]
    elif what == "renamed":
        section[f"{path[-1]}x"] = section.pop(path[-1])
    else:
        section[draw(st.text("abcdef_", min_size=8, max_size=9))] = draw(values)
    return tree, path, what


def full(name):
    """Every default written out."""
    return yaml.safe_load(resolve(TREES[name]).to_yaml())


@settings(max_examples=100)
@given(changed())
def test_a_changed_recipe_loads_or_one_message_says_what_is_wrong(change):
    tree, path, what = change
    where, before = ".".join(path), copy.deepcopy(tree)
    try:
        config = resolve(tree, where="team.yaml")
    except UserError as error:
        for line in str(error).splitlines():
            assert line.startswith("team.yaml: "), line
            assert "instance of" not in line and "[key]" not in line, line
        assert len(str(error).splitlines()) < 20
    else:
        if what in ("renamed", "added"):
            named = re.fullmatch(r"(agents|models)\.[^.]+", where) or where in ("agents", "models")
            assert FREE.match(where) or named, f"{what} {where} was silently ignored"
        again = resolve(yaml.safe_load(config.to_yaml()))
        assert again == config and again.to_yaml() == config.to_yaml()
    assert repr(tree) == repr(before)  # NaN is not itself; a caller's tree stays as it is


overrides = st.one_of(
    st.text(max_size=20),
    st.builds(
        "{}={}".format,
        st.sampled_from([".".join(path) for tree in TREES.values() for path in paths(tree)]),
        st.text(max_size=8) | values.map(repr),
    ),
)


@settings(max_examples=250)
@given(st.sampled_from(sorted(TREES)), overrides)
def test_any_override_loads_or_is_named(name, override):
    try:
        resolve(TREES[name], [override], where="team.yaml")
    except UserError as error:
        for line in str(error).splitlines():
            assert line.startswith(("team.yaml: ", "--set ")), line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train: {steps: 1}\ntrain: {steps: 2}", "the key 'train' stands twice"),
        ("a: {lr: 1, lr: 2}", "the key 'lr' stands twice"),
        ("a: &a {b: *a}", "an alias stands within what it stands for"),
        ("a: &a [*a]", "an alias stands within"),
        ("[" * 2000 + "]" * 2000, "nested too deeply"),
        ('a: "b\\0c"', "a NUL character"),
        ("a: 2026-13-45", "month"),
    ],
)
def test_yaml_that_is_not_taken(text, said):
    with pytest.raises(yaml.YAMLError, match=said):
        read_tree(text)


def test_aliases_that_multiply_end():
    levels = [
        f"{b}: &{b} [{','.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefg", "bcdefgh", strict=True)
    ]
    text = "a: &a [1]\n" + "\n".join(levels)
    with pytest.raises(yaml.YAMLError, match=f"more than {MAX_VALUES:,} values"):
        read_tree(text)


def test_what_a_merge_brings_may_be_said_again_and_an_alias_is_a_copy():
    tree = read_tree("a: &a {x: {y: 1}, z: 1}\nb: {<<: *a, z: 2}\nc: *a")
    assert tree == {"a": {"x": {"y": 1}, "z": 1}, "b": {"x": {"y": 1}, "z": 2}, "c": tree["a"]}
    assert tree["a"]["x"] is not tree["b"]["x"] is not tree["c"]["x"]
