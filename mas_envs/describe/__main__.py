"""`python -m mas_envs.describe > docs/environments.md`."""

import sys

from mas_envs.describe import all_pages

sys.stdout.buffer.write(all_pages().encode())  # UTF-8 whatever the terminal's encoding
