"""What a broker goes by while it runs: its static settings, and over them what was agreed on since.

What a topic has its default from, and what its log is made with, changes at once. The rest a broker
reads when it starts: changing that in a running cluster is refused, not ignored.
"""

from __future__ import annotations

from lossless.core.admin_messages import ALL_BROKERS, broker_resource
from lossless.core.metadata import Image
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.brokers import effective
from lossless.core.settings.kinds import InvalidSetting
from lossless.core.settings.topics import SYNONYMS

AT_RUN_TIME = frozenset(
    {synonym.name for synonyms in SYNONYMS.values() for synonym in synonyms}
    | {"producer.id.expiration.ms"}
)


def properties_now(static: BrokerSettings, image: Image, broker: int) -> dict[str, str]:
    own = image.overrides(broker_resource(broker))
    return effective(static.properties, image.overrides(ALL_BROKERS), own)


def settings_now(static: BrokerSettings, image: Image, broker: int) -> BrokerSettings:
    """What was agreed on by those whose static settings allow it, and this broker's do not, it
    leaves alone."""
    properties = properties_now(static, image, broker)
    if properties == static.properties:
        return static
    try:
        settings, _warnings = BrokerSettings.from_properties(properties)
    except InvalidSetting:
        return static
    return settings
