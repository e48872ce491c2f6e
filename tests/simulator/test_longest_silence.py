"""How long producers wait for an acknowledgement after brokers were killed, in simulated time.

The settings of time are those of an embedded cluster that nobody has configured. Whatever was
killed, once every process runs again the first acknowledgement comes within a session, an election
and two seconds: a broker that comes back is let in when the session of the one before it is over.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

import pytest

from lossless.core.broker import BrokerConfig
from lossless.core.controller_node import ControllerConfig
from lossless.core.settings.broker_settings import BrokerSettings
from lossless.core.settings.deviations import with_deviations
from lossless.core.settings.machines import broker_config, controller_config
from lossless.simulator.faults import Action, Timed
from lossless.simulator.run import Plan, Run
from lossless.simulator.schedule import Kind
from lossless.simulator.settings import ProducerSettings, Settings
from lossless.simulator.world import FIRST_CONTROLLER
from lossless.verifier.history import Acknowledged

BROKERS = 3
SHIPPED, _ = BrokerSettings.from_properties(with_deviations({}, brokers=BROKERS))
SESSION_MS = SHIPPED.membership.broker_session_timeout_ms
ELECTION_MS = (
    2 * SHIPPED.controllers.controller_quorum_election_timeout_ms
    + SHIPPED.controllers.controller_quorum_election_backoff_max_ms
)
SILENCE_MS_MAX = SESSION_MS + ELECTION_MS + 2_000
BEGIN_MS = 12_000  # by then the cluster is up, and acknowledges
INTERVAL_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped(Settings):
    """The simulator's own times are thirty times shorter."""

    @property
    def broker_config(self) -> BrokerConfig:
        return broker_config(SHIPPED)

    @property
    def controller_config(self) -> ControllerConfig:
        return controller_config(SHIPPED)


def story(chance: random.Random, is_combined: bool) -> list[Timed]:
    """Nodes die at the same time and come back one by one, again and again; at the end all run.
    A broker and its controller die together, unless controllers have processes of their own."""
    brokers = range(1, BROKERS + 1)
    controllers = range(FIRST_CONTROLLER, FIRST_CONTROLLER + BROKERS)
    nodes = (
        list(zip(brokers, controllers, strict=True))
        if is_combined
        else [(one,) for one in (*brokers, *controllers)]
    )
    timed, alive, at_ms = [], set(nodes), BEGIN_MS

    def do(verb: str, node: tuple[int, ...]) -> None:
        timed.extend(Timed(at_ms, Action(verb, process)) for process in node)

    for _ in range(chance.randrange(1, 5)):
        for node in chance.sample(sorted(alive), chance.randrange(1, len(alive) + 1)):
            do("crash", node)
            alive.discard(node)
        at_ms += chance.choice((1, 300, 1_000, 3_000, 8_000, 10_000))
        for node in sorted(set(nodes) - alive):
            if chance.random() < 0.7:
                do("start", node)
                alive.add(node)
        at_ms += chance.choice((1, 300, 1_000, 5_000, 12_000))
        if not alive:
            break
    for node in sorted(set(nodes) - alive):
        do("start", node)
    return timed


@pytest.mark.parametrize("is_combined", [True, False], ids=["combined", "controllers-apart"])
@pytest.mark.parametrize("seed", range(5))
def test_the_first_acknowledgement_comes_a_session_after_all_are_back(
    seed: int, is_combined: bool
) -> None:
    faults = story(random.Random(f"silence/{seed}/{is_combined}"), is_combined)
    back_ms = faults[-1].at_ms
    end_ms = back_ms + 2 * SILENCE_MS_MAX
    settings = Shipped(
        controllers=BROKERS,
        producers=1,
        consumers=0,
        producer=ProducerSettings(records=end_ms // INTERVAL_MS, interval_ms=INTERVAL_MS),
    )
    result = Run(settings, seed, Plan(Kind.CALM, tuple(faults), end_ms=end_ms)).run()
    acknowledged = [one.time_ms for one in result.history.of(Acknowledged)]
    assert min(acknowledged) < BEGIN_MS
    times = [back_ms, *(at_ms for at_ms in acknowledged if at_ms > back_ms)]
    silence_ms = max(after - before for before, after in pairwise(times))
    told = [f"{one.at_ms} {one.action.told()}" for one in faults]
    assert silence_ms <= SILENCE_MS_MAX, told
    assert result.anomalies == ()
