"""The simulator: its engine adds up, its runs repeat, no batch request is lost or run twice, and the policy stays inside its limits."""

from __future__ import annotations

import csv
from collections.abc import Sequence as Values
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.costs import closed_loop
from scheduler.admission import Mode
from scheduler.simulator import traces
from scheduler.simulator.backlog import Backlog
from scheduler.simulator.command import simulate
from scheduler.simulator.compare import POLICIES, World, case
from scheduler.simulator.costs import costs
from scheduler.simulator.engine import Replica
from scheduler.simulator.faults import USES, Use, What, drill
from scheduler.simulator.figures import percentile
from scheduler.simulator.iteration import Iteration, Limits, Sequence
from scheduler.simulator.ours import MAX_SLOTS, InEngine, OverUpstream, policy
from scheduler.simulator.replay import Replay
from scheduler.simulator.signals import Fault
from slackwater.errors import Misconfigured

TRACES = Path("benchmarks/traces")
POISSON = case("poisson:0.5")
FAULTS = st.lists(
    st.builds(
        Fault,
        st.sampled_from(["engine", "live", "nvml", "worker"]),
        st.floats(0, 15),
        st.floats(0.1, 8),
    ),
    max_size=4,
)


class Watched(InEngine):
    """Notes what must never happen."""

    def __init__(self) -> None:
        super().__init__(policy(1.0, 0.065, Limits()))
        self.wrong: list[str] = []

    def after(self, replay: Replay, it: Iteration) -> None:
        began = replay.now - it.ms / 1000
        age = began - min(replay.signals.engine_at, replay.signals.live_at)
        if it.own_prompt and age > 1.0 + 1e-6:
            self.wrong.append(f"{it.own_prompt} tokens on signals {age:.2f} s old")
        if replay.own > MAX_SLOTS:
            self.wrong.append(f"{replay.own} in flight")
        super().after(replay, it)


def replay_of(strategy: InEngine | OverUpstream, seed: int, faults: Values[Fault], seconds: float = 20.0) -> Replay:
    arrivals = traces.load("poisson", TRACES, seconds, seed)
    return Replay(
        arrivals,
        Backlog(traces.batch_work(traces.seeded(seed))),
        strategy,
        costs(),
        Limits(),
        seconds,
        seed=seed,
        faults=faults,
    )


@settings(max_examples=20, deadline=None)
@given(FAULTS, st.integers(0, 1000))
def test_under_faults_nothing_is_lost_doubled_or_fed_on_stale_signals(faults: list[Fault], seed: int) -> None:
    strategy = Watched()
    replay = replay_of(strategy, seed, faults)
    replay.run()

    assert strategy.wrong == []
    backlog = replay.backlog
    places = [*backlog.finished, *replay.in_flight, *(id_ for id_, _, _ in backlog.returned)]
    assert len(places) == len(set(places)) == backlog.taken


@settings(max_examples=10, deadline=None)
@given(FAULTS, st.integers(0, 1000))
def test_over_an_upstream_nothing_is_lost_either(faults: list[Fault], seed: int) -> None:
    replay = replay_of(OverUpstream(policy(1.0, 0.065, Limits())), seed, faults)
    replay.run()

    backlog = replay.backlog
    places = [*backlog.finished, *replay.in_flight, *(id_ for id_, _, _ in backlog.returned)]
    assert len(places) == len(set(places)) == backlog.taken


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 60), st.booleans()), min_size=1, max_size=30))
def test_the_engine_computes_every_token_and_frees_the_cache(requests: list[tuple[int, int, bool]]) -> None:
    replica, now, done = Replica(costs(), Limits(cap=256)), 0.0, []
    for i, (prompt, output, is_live) in enumerate(requests):
        replica.arrive(Sequence(i, prompt, output, 0.0, is_live=is_live))
    prompts = 0
    while not replica.is_idle:
        it = replica.step(1024, now)
        now += it.ms / 1000
        prompts += it.live_prompt + it.own_prompt
        done += [s.id for s in (*it.ended_live, *it.ended_own)]
        assert it.decoding + it.live_prompt + it.own_prompt <= 1024

    assert sorted(done) == list(range(len(requests)))
    assert prompts == sum(prompt for prompt, _, _ in requests)
    assert (replica.kv, replica.own_kv, replica.reserved, replica.own_reserved) == (0, 0, 0, 0)


def test_the_same_seed_gives_the_same_figures() -> None:
    def run() -> object:
        world = World(POISSON, 3, 40.0, TRACES, costs(), replicas=2)
        promise = world.promise(world.run(POLICY_ALONE))
        return [POLICIES[name](world, promise) for name in ("upstream", "in-engine")]

    assert run() == run()


def POLICY_ALONE(_: object) -> OverUpstream:  # noqa: N802
    return OverUpstream(policy(1.0, 0.065, Limits()))


def test_the_command_prints_every_table_and_draws(tmp_path: Path) -> None:
    said: list[str] = []
    lines = simulate(
        said.append,
        traces=TRACES,
        cases=["poisson:0.5"],
        policies=["always-4", "in-engine"],
        seconds=40,
        seeds=1,
        charts=tmp_path,
        faults=False,
    )

    assert [line.figures.policy for line in lines] == [
        "live only",
        "in-engine oracle",
        "always on, 4",
        "ours in the engine",
    ]
    assert "| ours in the engine" in said[0]
    assert "TTFT × alone" in said[1]
    assert len(said) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"headroom.svg", "poisson-0.5.svg"}
    assert "<svg" in (tmp_path / "headroom.svg").read_text()


@pytest.mark.parametrize("text", ["conv:x", "conv:0", "conv:-1"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="share"):
        case(text)


def test_an_unknown_trace_and_policy_are_refused_by_name() -> None:
    with pytest.raises(Misconfigured, match="azure-2030"):
        traces.load("azure-2030", TRACES, 10)
    with pytest.raises(Misconfigured, match="magic"):
        simulate(lambda _: None, cases=["poisson"], policies=["magic"], seconds=10, seeds=1)


@pytest.mark.parametrize(("what", "mode"), [("engine", "balanced"), ("live", "balanced"), ("nvml", "strict")])
@pytest.mark.parametrize("use", list(USES))
def test_a_missing_signal_holds_within_a_second_and_work_resumes(what: What, mode: Mode, use: Use) -> None:
    found = drill(what, use, mode, case("poisson:0.2"), TRACES, costs())

    assert found.fed_for_seconds <= 1.0
    assert found.resumed or mode == "strict"
    assert found.lost == 0


def test_a_worker_that_dies_loses_nothing_over_an_engine_that_reads_in_turn() -> None:
    found = drill("worker", "first-come", "balanced", case("poisson:0.2"), TRACES, costs())

    assert found.fed_for_seconds == 0.0
    assert found.resumed
    assert found.lost == 0


def test_nvml_alone_may_be_down_in_balanced() -> None:
    assert drill("nvml", "in-engine", "balanced", case("poisson:0.2"), TRACES, costs()).fed_for_seconds > 5.0


def test_the_cost_model_is_near_what_was_measured() -> None:
    """H200, two GPUs, up to 16 streams: the median error of the time per token is below a tenth."""
    with (TRACES / "calibration/llama31_70b_vllm.csv").open() as lines:
        rows = [
            r for r in csv.DictReader(lines) if (r["system"], r["tp"]) == ("h200", "2") and int(r["concurrency"]) <= 16
        ]
    errors = []
    for row in rows:
        found, _ = closed_loop(costs(), int(row["isl"]), int(row["osl"]), int(row["concurrency"]))
        errors.append(abs(found / float(row["tpot_ms"]) - 1))

    assert len(errors) >= 9
    assert median(errors) < 0.1


def test_the_traces_are_those_of_the_published_statistics() -> None:
    conv = traces.load("conv", TRACES, 4000)
    code = traces.load("code", TRACES, 4000)

    assert (len(conv), len(code)) == (19_366, 8_819)
    assert percentile([a.prompt for a in conv], 0.5) == pytest.approx(1020, abs=2)


def test_thinning_keeps_the_share() -> None:
    conv = traces.load("conv", TRACES, 4000)

    assert len(traces.thin(conv, 0.25, traces.seeded(1))) == pytest.approx(len(conv) / 4, rel=0.05)
    assert len(traces.thin(conv, 2.5, traces.seeded(1))) == pytest.approx(len(conv) * 2.5, rel=0.05)
