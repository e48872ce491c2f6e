"""The delivery contract: one file, `lossless.toml`, that says what is promised and how."""

from lossless.contract.librdkafka import librdkafka_settings
from lossless.contract.load import find_contract, load_contract
from lossless.contract.place import ContractError
from lossless.contract.redaction import redact_text, redacted
from lossless.contract.values import (
    ClusterContract,
    ConsumerContract,
    Contract,
    DeltaSinkContract,
    Guarantee,
    ParquetSinkContract,
    PipelineContract,
    PostgresSinkContract,
    ProducerContract,
    SinkContract,
    TopicContract,
)

__all__ = [
    "ClusterContract",
    "ConsumerContract",
    "Contract",
    "ContractError",
    "DeltaSinkContract",
    "Guarantee",
    "ParquetSinkContract",
    "PipelineContract",
    "PostgresSinkContract",
    "ProducerContract",
    "SinkContract",
    "TopicContract",
    "find_contract",
    "librdkafka_settings",
    "load_contract",
    "redact_text",
    "redacted",
]
