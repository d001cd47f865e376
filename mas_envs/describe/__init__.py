"""A page per environment, computed from its code: `mas-envs show ID`, docs/environments.md."""

from mas_envs.describe.pages import all_pages, describe, headline, shipped

__all__ = ["all_pages", "describe", "headline", "shipped"]
