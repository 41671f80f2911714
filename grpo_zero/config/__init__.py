"""The configuration: declared by ``sections.py``, loaded by ``load.py``, and checked by ``checks.py`` before anything else is."""

from grpo_zero.config.checks import config_notes
from grpo_zero.config.load import (
    config_from_dict,
    describe_options,
    dump_yaml,
    load_config,
    packaged_configs,
    resolve_config_path,
)
from grpo_zero.config.sections import (
    LORA_TARGETS,
    SECTIONS,
    Config,
    EvaluationConfig,
    LoraConfig,
    ModelConfig,
    SftConfig,
    TrainingConfig,
)

__all__ = [
    "LORA_TARGETS",
    "SECTIONS",
    "Config",
    "EvaluationConfig",
    "LoraConfig",
    "ModelConfig",
    "SftConfig",
    "TrainingConfig",
    "config_from_dict",
    "config_notes",
    "describe_options",
    "dump_yaml",
    "load_config",
    "packaged_configs",
    "resolve_config_path",
]
