"""Other processes: `pool` holds math-verify within its limits, `batch` grades on all cores."""
