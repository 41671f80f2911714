"""What stands behind the commands that are neither training nor warm start."""
