"""`python -m mas_envs.testing FILE`: do these episodes replay exactly in this process, too?"""

import sys

from mas_envs.episodes.store import read_episodes
from mas_envs.errors import MasError
from mas_envs.testing import replay_all

try:
    replay_all(read_episodes(sys.argv[1]))
except MasError as error:
    sys.exit(" ".join(str(error).split()))
