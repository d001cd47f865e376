"""Tokens, submissions and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create everything."""
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("expires", sa.Double()),
        sa.Column("revoked", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )
    op.create_table(
        "submissions",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.Integer()),
        sa.Column("received", sa.Double(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("system", sa.String(200), nullable=False),
        sa.Column("team", sa.String(200), nullable=False),
        sa.Column("suite", sa.String(200), nullable=False),
        sa.Column("k", sa.BigInteger(), nullable=False),
        sa.Column("reasons", sa.JSON(), nullable=False),
        sa.Column("scores", sa.JSON(), nullable=False),
        sa.Column("record", sa.LargeBinary()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("leased_until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_submissions"),
        sa.UniqueConstraint("sha256", name="uq_submissions_sha256"),
        sa.ForeignKeyConstraint(["token"], ["tokens.id"], name="fk_submissions_token"),
    )
    for column in ("token", "received", "status", "suite"):
        op.create_index(f"ix_submissions_{column}", "submissions", [column])
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.String(120), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.String(120), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )


def downgrade() -> None:
    """Drop everything."""
    op.drop_table("audit")
    for column in ("token", "received", "status", "suite"):
        op.drop_index(f"ix_submissions_{column}", "submissions")
    op.drop_table("submissions")
    op.drop_table("tokens")
