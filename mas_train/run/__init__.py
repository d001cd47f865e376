"""The folder of a run: checkpoints, metrics, plots, exports, polite stops."""
