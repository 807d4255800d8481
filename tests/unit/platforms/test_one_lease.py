"""A lease in a store of memory: who gets it, and when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from fakes import FakeClock

from toolkit.errors import PlatformError
from toolkit.platforms.lease import Entry, Holder, Rules, lease, this_process

BY_STORE = Rules(seconds=300, renewal_seconds=60, poll_seconds=None)
OBSERVED = Rules(seconds=30, renewal_seconds=10, poll_seconds=2)
REFUSED = "chat is being changed by"


class Lost(Exception):
    """No answer came."""


@dataclass
class Memory:
    """A store that holds one lease. `lose` names calls whose next answer is lost."""

    rules: Rules = BY_STORE
    entry: Entry | None = None
    key: str = "memory"
    errors: tuple[type[Exception], ...] = (Lost,)
    lose: tuple[str, ...] = ()
    writes: int = 0

    def create(self, holder: Holder) -> str:
        return "" if self.entry else self._write("create", holder)

    def read(self) -> Entry | None:
        return self.entry

    def replace(self, holder: Holder, version: str) -> str:
        return self._write("replace", holder) if self.entry and self.entry.version == version else ""

    def delete(self, version: str) -> bool:
        if self.entry is None or self.entry.version != version:
            return False
        self.entry = None
        return True

    def put(self, holder: Holder | str | None) -> None:
        self.writes += 1
        self.entry = Entry(str(self.writes), holder, self.rules.seconds)

    def _write(self, call: str, holder: Holder) -> str:
        self.put(holder)
        if call in self.lose:
            self.lose = tuple(name for name in self.lose if name != call)
            raise Lost(call)
        return str(self.writes)


def elsewhere(since: float = 0) -> Holder:
    """A holder on another machine, whose clock differs from ours by so many seconds."""
    mine = this_process()
    return replace(mine, machine="another", since=mine.since + since)


def dead_process() -> Holder:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return replace(this_process(), pid=ended.pid)


def never(_: float) -> None:
    raise AssertionError("nobody is waited for")


@pytest.fixture(params=[BY_STORE, OBSERVED], ids=["by-store", "observed"])
def store(request: pytest.FixtureRequest) -> Memory:
    return Memory(request.param)


def test_a_user_without_a_name_holds_it_by_number() -> None:
    """As a container or a pod runs with any: it has neither an entry in the user database nor $USER."""
    if os.geteuid():
        pytest.skip("NOT TESTED: only root may become a user that nobody knows")
    command = "import os; from toolkit.platforms import lease; os.setuid(54321); print(lease.this_process().user)"
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, env=environment, check=False)
    assert ran.stdout == "uid 54321\n", ran.stderr


def test_it_is_held_and_given_back(store: Memory) -> None:
    with lease("chat", store):
        assert store.entry
    assert store.entry is None


@pytest.mark.parametrize("holder", [dead_process, lambda: this_process(), lambda: None])
def test_what_no_process_holds_any_more_is_taken_over_at_once(
    store: Memory, holder: Callable[[], Holder | None]
) -> None:
    store.put(holder())
    with lease("chat", store, sleep=never):
        assert store.entry.version == "2"


def test_a_living_process_of_this_machine_keeps_it() -> None:
    store = Memory()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        store.put(replace(this_process(), pid=other.pid))
        with (
            pytest.raises(PlatformError, match=rf"{REFUSED} .* \(process {other.pid}\), since 0 min"),
            lease("chat", store),
        ):
            pass
    assert store.entry.version == "1"


@pytest.mark.parametrize("ours", [-10_000, 0, 10_000])
@pytest.mark.parametrize("theirs", [-10_000, 0, 10_000])
def test_where_the_store_knows_the_time_no_holder_s_clock_counts(ours: float, theirs: float) -> None:
    store = Memory()
    store.put(elsewhere(theirs))
    with (
        pytest.raises(PlatformError, match=REFUSED),
        lease("chat", store, clock=lambda: time.time() + ours, sleep=never),
    ):
        pass
    assert store.entry.version == "1"


@pytest.mark.parametrize("holder", [elsewhere(-10_000), elsewhere(10_000), "somebody else's program"])
def test_where_no_other_clock_counts_it_is_watched_for_its_time(holder: Holder | str) -> None:
    store, clock = Memory(OBSERVED), FakeClock()
    store.put(holder)
    with lease("chat", store, clock, clock.sleep):
        assert 30 < clock.seconds < 35


def test_its_own_time_counts_where_that_is_longer() -> None:
    store, clock = Memory(OBSERVED), FakeClock()
    store.entry = Entry("1", elsewhere(), 90)
    with lease("chat", store, clock, clock.sleep):
        assert 90 < clock.seconds < 95


def test_one_that_is_renewed_meanwhile_is_refused() -> None:
    store, clock = Memory(OBSERVED), FakeClock()
    store.put(elsewhere())

    def renewed(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.seconds > 20:
            store.put("ann@laptop")

    with pytest.raises(PlatformError, match=f"{REFUSED} ann@laptop") as error, lease("chat", store, clock, renewed):
        pass
    assert "expires within 30 seconds" in error.value.hint


def test_one_that_is_given_back_meanwhile_is_free() -> None:
    store, clock = Memory(OBSERVED), FakeClock()
    store.put(elsewhere())

    def given_back(seconds: float) -> None:
        clock.sleep(seconds)
        store.entry = None

    with lease("chat", store, clock, given_back):
        assert clock.seconds < 5


def test_of_two_that_take_it_over_the_slower_is_refused() -> None:
    class Raced(Memory):
        def replace(self, holder: Holder, version: str) -> str:
            self.put(elsewhere())
            return super().replace(holder, version)

    store = Raced()
    store.put(None)
    with pytest.raises(PlatformError, match=REFUSED), lease("chat", store):
        pass


def test_where_others_are_always_faster_it_gives_up() -> None:
    class Flickering(Memory):
        def create(self, holder: Holder) -> str:
            return ""

    with pytest.raises(PlatformError, match="another process that was faster"), lease("chat", Flickering()):
        pass


def test_a_claim_whose_answer_was_lost_is_the_next_one_s() -> None:
    store = Memory(lose=("create",))
    with pytest.raises(Lost), lease("chat", store):
        pass
    with lease("chat", store, sleep=never):
        pass
    assert store.entry is None


def test_a_process_that_is_stopped_while_its_renewal_is_answered_is_refused() -> None:
    clock = FakeClock()

    class Stopping(Memory):
        def replace(self, holder: Holder, version: str) -> str:
            written = super().replace(holder, version)
            clock.sleep(400)
            self.put(elsewhere())
            return written

    store = Stopping()
    with lease("chat", store, elapsed=clock) as confirm:
        clock.sleep(200)
        with pytest.raises(PlatformError, match=REFUSED):
            confirm()


def test_a_stop_in_which_nobody_took_it_over_is_none() -> None:
    clock = FakeClock()

    class Stopping(Memory):
        def replace(self, holder: Holder, version: str) -> str:
            clock.sleep(400 if self.writes == 1 else 0)
            return super().replace(holder, version)

    store = Stopping()
    with lease("chat", store, elapsed=clock) as confirm:
        clock.sleep(200)
        confirm()
    assert store.writes == 3


def test_the_store_s_own_second_try_is_no_other_s_lease() -> None:
    class Retrying(Memory):
        def create(self, holder: Holder) -> str:
            self.put(holder)  # the first try, whose answer is lost
            return super().create(holder)

    store = Retrying()
    with lease("chat", store, sleep=never):
        assert store.writes == 1
    assert store.entry is None


def test_it_is_renewed_and_a_lost_answer_does_not_end_that() -> None:
    store = Memory(Rules(seconds=300, renewal_seconds=0.01, poll_seconds=None), lose=("replace",))
    with lease("chat", store):
        held = store.entry.holder
        deadline = time.monotonic() + 20
        while store.writes < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store.writes >= 4
        assert store.entry.holder == held
    assert store.entry is None


def test_one_that_was_taken_over_is_not_given_back_for_the_other(store: Memory) -> None:
    with lease("chat", store):
        store.put(elsewhere())
    assert store.entry.holder.machine == "another"


def test_what_changed_nothing_of_it_does_not_keep_it() -> None:
    """Somebody wrote the same again, such as an operator who labels it: the version is another."""
    store = Memory()
    with lease("chat", store):
        store.put(store.entry.holder)
    assert store.entry is None


def test_another_thread_is_refused_and_may_have_another_lease(store: Memory) -> None:
    refused: list[PlatformError] = []

    def other() -> None:
        try:
            with lease("chat", store):
                pass
        except PlatformError as error:
            refused.append(error)

    with lease("chat", store), lease("other", Memory(key="other")):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert REFUSED in refused[0].message


def test_who_was_stopped_for_too_long_learns_of_it_before_the_next_change(store: Memory) -> None:
    clock = FakeClock()
    with lease("chat", store, elapsed=clock) as confirm:
        clock.sleep(1000)
        store.put(elsewhere())
        with pytest.raises(PlatformError, match=REFUSED):
            confirm()
    assert store.writes == 2


def test_who_was_stopped_and_nobody_came_goes_on(store: Memory) -> None:
    """By the store's clock it was over; it has not been written since."""
    clock = FakeClock()
    with lease("chat", store, elapsed=clock) as confirm:
        clock.sleep(1000)
        store.entry = replace(store.entry, holder=None)
        confirm()
        assert isinstance(store.entry.holder, Holder)
        assert store.writes == 2


def test_soon_after_a_renewal_nothing_is_asked(store: Memory) -> None:
    class Counting(Memory):
        reads = 0

        def read(self) -> Entry | None:
            self.reads += 1
            return super().read()

    clock, counting = FakeClock(), Counting(store.rules)
    with lease("chat", counting, elapsed=clock) as confirm:
        clock.sleep(store.rules.seconds / 2 - 1)
        confirm()
        assert counting.reads == 0
        clock.sleep(2)
        confirm()
        assert counting.reads == 1


def test_one_that_was_deleted_is_no_longer_ours(store: Memory) -> None:
    clock = FakeClock()
    with lease("chat", store, elapsed=clock) as confirm:
        clock.sleep(1000)
        store.entry = None
        with pytest.raises(PlatformError, match="this process was stopped for too long"):
            confirm()
