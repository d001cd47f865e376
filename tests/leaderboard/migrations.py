"""A migration that a later release may have, and what must survive it."""

import shutil

from sqlalchemy import select, text

from leaderboard.store import database as database_module
from leaderboard.store.audit import note
from leaderboard.store.database import downgrade, revision, upgrade
from leaderboard.store.models import Base, Submission
from leaderboard.store.tokens import create_token

LATER = """
from alembic import op
import sqlalchemy as sa

revision = "0002"
down_revision = "0001"


def upgrade():
    {up}


def downgrade():
    {down}
"""
UP = """with op.batch_alter_table("tokens") as table:
        table.add_column(sa.Column("note", sa.String(10), server_default="new", nullable=False))
        table.alter_column("name", type_=sa.String(200))
    with op.batch_alter_table("submissions") as table:
        table.alter_column("team", new_column_name="group")"""
DOWN = """with op.batch_alter_table("submissions") as table:
        table.alter_column("group", new_column_name="team")
    with op.batch_alter_table("tokens") as table:
        table.alter_column("name", type_=sa.String(100))
        table.drop_column("note")"""


def a_submission(token):
    return Submission(id="0" * 16, sha256="0" * 64, size=1, token=token, received=1.5, k=1,
                      system="pair", team="lab", suite="arith", record=b"\0x")  # fmt: skip


def with_migration(folder, monkeypatch, up, down="pass"):
    copy = shutil.copytree(database_module.MIGRATIONS, folder / "migrations")
    (copy / "versions" / "0002_later.py").write_text(LATER.format(up=up, down=down))
    monkeypatch.setattr(database_module, "MIGRATIONS", copy)


def check_later_migration(database, folder, monkeypatch):
    """Up, down and up again: every row is as before, but for what the migration changes."""
    with database.write() as session:
        token, _ = create_token(session, "lab", "submit", 1, "me")
        session.add(a_submission(token.id))
        note(session, "me", "wrote", "something", "Zoë 😀")

    def rows():
        with database.read() as session:
            return [
                tuple(row) for table in Base.metadata.sorted_tables
                for row in session.execute(select(table))
            ]  # fmt: skip

    before = rows()
    with_migration(folder, monkeypatch, UP, DOWN)
    for _ in range(2):
        upgrade(database)
        assert revision(database) == "0002"
        with database.read() as session:
            found = session.execute(text('SELECT name, note, "group" FROM tokens, submissions'))
            assert found.all() == [("lab", "new", "lab")]
        downgrade(database, "0001")
        assert rows() == before and len(before) == 4
