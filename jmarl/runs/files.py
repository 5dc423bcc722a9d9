"""Names of the files in the directory of a run, of a member of a group, or of a group."""

CONFIG = "config.yaml"
VERSIONS = "versions.json"
METRICS = "metrics.jsonl"
EVALUATIONS = "evals.jsonl"
SUMMARY = "summary.json"
MARL_EVAL = "marl_eval.json"
CHECKPOINTS = "checkpoints"
TENSORBOARD = "tensorboard"
MEMBER = "member.json"  # in a member's directory: whose checkpoints are its own
REPLAY = "replay.gif"
