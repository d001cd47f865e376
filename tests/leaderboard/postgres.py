"""A PostgreSQL of our own, from Debian's package, as long as a test needs it."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from leaderboard.store import connect

USER = "postgres"  # it refuses to run as root


def programs():
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


@contextlib.contextmanager
def running():
    """Gives the URL of its database; skips where there is none installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: mas-gym[postgresql]")
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    prefix = []
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(USER)
        except KeyError:
            pytest.skip(f"PostgreSQL does not run as root, and there is no user {USER}")
        prefix = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="pg-") as name:
        if prefix:
            shutil.chown(name, USER, USER)

        def run(program, *args):
            command = [*prefix, folder / program, *args]
            done = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr

        run("initdb", "-D", f"{name}/data", "-A", "trust", "-U", "board", "-E", "UTF8")
        options = f"-k {name} -c listen_addresses='' -c max_connections=200"
        run("pg_ctl", "-D", f"{name}/data", "-l", f"{name}/log", "-w", "-o", options, "start")
        try:
            yield f"postgresql://board@/postgres?host={name}"
        finally:
            run("pg_ctl", "-D", f"{name}/data", "-m", "immediate", "-w", "stop")


def clear(url):
    """Nothing in it, as at the beginning."""
    database = connect(url)
    with database.write() as session:
        session.connection().exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    database.close()
