"""Which cases each launch of a campaign measures, decided as the launches before it end: edge, reads what they wrote.

What is decided follows from the campaign file, the lines of the launches before, and, under a time limit, the count at
which a launch began; so the same command, started again, decides the same.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from spanfit.bench.campaign_file import CampaignFile
from spanfit.bench.case import BenchCase, Visit
from spanfit.bench.plan import plan_visits
from spanfit.profiler import stopping
from spanfit.profiler.clock import RunClock
from spanfit.profiler.stopping import CaseState, History
from spanfit.results.shards import read_shard


class Agenda:
    """The launches of a campaign that are decided, and how far they are.

    Parameters
    ----------
    campaign : CampaignFile
    cases : sequence of BenchCase
    shard_path : callable
        Gives the file of a launch's lines.
    clock : RunClock
    """

    def __init__(
        self,
        campaign: CampaignFile,
        cases: Sequence[BenchCase],
        shard_path: Callable[[int], Path],
        clock: RunClock,
    ) -> None:
        self.campaign = campaign
        self.rule = stopping.rule_of(campaign)
        self.cases = cases
        self.shard_path = shard_path
        self.clock = clock
        self._decided: list[tuple[Visit, ...]] = []
        self._history = History()
        self._is_settled = False
        # Without a limit of time nothing that a launch does changes those that every case gets.
        self._nfixed = self.rule.least if campaign.time_limit is None else 1

    @property
    def visits(self) -> tuple[tuple[Visit, ...], ...]:
        """The cases of each launch in its order, of all launches that are decided by now."""
        while not self._is_settled and self._can_decide():
            visits = self._decide(len(self._decided))
            self._is_settled = not visits
            self._decided += [visits] if visits else []
        return tuple(self._decided)

    def _can_decide(self) -> bool:
        launch = len(self._decided)
        return launch < self._nfixed or not self._left(launch - 1, self._decided[-1])

    def _decide(self, launch: int) -> tuple[Visit, ...]:
        if launch < self._nfixed:
            return plan_visits(self.campaign, self.cases, launch)
        history = self._complete(launch)
        cases = stopping.open_cases(self.rule, self.cases, history)
        so_far = sum(map(len, self._decided))
        fit = stopping.visits_that_fit(so_far, self.clock.begun_s(launch), self.clock.limit_s)
        if fit is not None and fit < len(cases) * self.campaign.blocks:
            cases = stopping.most_wanted(cases, history, fit // self.campaign.blocks)
        return plan_visits(self.campaign, cases, launch)

    def _complete(self, nlaunches: int) -> History:
        """Return what the first launches measured, reading each of their files once."""
        known = self._history.launches
        fresh = (stopping.shard_units(read_shard(self.shard_path(n))) for n in range(len(known), nlaunches))
        self._history = History(launches=(*known, *fresh))
        return self._history

    def missing(self, launch: int) -> tuple[Visit, ...]:
        """Return the visits of a launch that are not finished, in its order."""
        return self._left(launch, self.visits[launch])

    def _left(self, launch: int, visits: tuple[Visit, ...]) -> tuple[Visit, ...]:
        finished = read_shard(self.shard_path(launch)).finished()
        return tuple(visit for visit in visits if (visit.block, visit.case.case_id) not in finished)

    def states(self) -> tuple[CaseState, ...]:
        """Return how far each case is by what is written now, a launch in hand included."""
        shards = [read_shard(self.shard_path(launch)) for launch in range(len(self.visits))]
        history = History(launches=tuple(stopping.shard_units(shard) for shard in shards if shard.cases))
        return stopping.case_states(self.rule, self.cases, history)

    def unmeasured(self) -> tuple[Visit, ...]:
        """Return a visit of each case that no launch has a line of."""
        shards = [read_shard(self.shard_path(launch)) for launch in range(len(self.visits))]
        known = {line["case_id"] for shard in shards for line in shard.cases}
        return tuple(visit for visit in self.visits[0] if visit.block == 0 and visit.case.case_id not in known)

    def expected_visits(self, launch: int) -> int:
        """Return about how many visits all launches will have made, by what those before this one measured."""
        decided = self.visits
        units = self._complete(launch).units
        known = len(decided) - launch
        expected = (stopping.expected_launches(self.rule, units.get(visit.case.case_id, ())) for visit in decided[-1])
        return sum(map(len, decided)) + sum(max(0, count - known) for count in expected)
