"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

# How long an example takes says something about the machine only: several suites share one here.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real benchmark files beside the repository; tests without it are skipped."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the folder of reference files (../shared) is not here")
    return folder
