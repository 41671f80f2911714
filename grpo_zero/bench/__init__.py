"""What ``grpo-zero bench`` measures: fixed workloads, one step of them by phases, and the machine's own limits."""
