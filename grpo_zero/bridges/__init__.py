"""Our tasks, verifiers and metrics in other trainers. A bridge needs the package it leads to; nothing here needs a bridge."""
