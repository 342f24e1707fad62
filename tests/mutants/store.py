"""Guards of the store: what is durable, and what happens while the disk refuses."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS = (
    Mutant(
        keeps="durable",
        without="a batch that the disk refused is forgotten",
        file="store/backlog.py",
        old=("        self._waiting.appendleft(self._settle())\n        self._keep_limit()"),
        new="        self._settle()",
        tests=("tests/store/test_backlog.py::test_a_batch_given_back_is_the_next_one",),
    ),
    Mutant(
        keeps="durable",
        without="what belongs together is split",
        file="store/backlog.py",
        old="(self._waiting[-1].cost >= _BATCH_BYTES and not self._is_grouping)",
        new="self._waiting[-1].cost >= _BATCH_BYTES",
        tests=("tests/store/test_backlog.py::test_what_is_put_together_is_never_cut",),
    ),
    Mutant(
        keeps="durable",
        without="half a batch is committed",
        file="store/database.py",
        old='Writing it again does no harm."""\n        with self.transaction():',
        new='Writing it again does no harm."""\n        with suppress():',
        tests=("tests/store/test_database.py::test_any_number_of_rows_is_written_as_one_transaction",),
    ),
    Mutant(
        keeps="durable",
        without="a row the database cannot hold takes the whole batch with it",
        file="store/writer.py",
        old=("        except REFUSED_ROW:\n            return self._database.write_what_fits(batch)"),
        new=("        except ZeroDivisionError:\n            return self._database.write_what_fits(batch)"),
        tests=("tests/store/test_service.py::test_rows_that_the_database_cannot_hold_are_told_and_left_out",),
    ),
    Mutant(
        keeps="durable",
        without="a flush returns before the write",
        file="store/service.py",
        old="self._writer.written >= position)",
        new="self._writer.written >= 0)",
        tests=("tests/store/test_degraded.py::test_a_full_disk_degrades_to_memory_and_recovers_by_itself",),
    ),
    Mutant(
        keeps="durable",
        without="a number is given out twice after a crash",
        file="store/service.py",
        old="            self._put(lambda backlog: backlog.reserve(reserved))",
        new="            pass",
        tests=("tests/store/test_service.py::test_a_reservation_is_durable_ahead_of_the_seqs_given_out",),
    ),
    Mutant(
        keeps="durable",
        without="another file under the name is written into",
        file="store/database.py",
        old="        if _place_of(self.path)[1] != self._places[self.path][1]:",
        new="        if False:",
        tests=(
            "tests/store/test_degraded.py::test_a_file_that_is_removed_or_replaced_is_told_once_though_nobody_writes_and_nothing_is_promised_any_more",
        ),
    ),
    Mutant(
        keeps="I7",
        without="a full disk makes the memory grow",
        file="store/backlog.py",
        old="        if not self.is_tight or waiting <= self._limit:",
        new="        if True:",
        tests=("tests/store/test_backlog.py::test_over_the_limit_the_oldest_events_are_given_up_and_counted",),
    ),
    Mutant(
        keeps="I6",
        without="a disk that never answers holds everybody",
        file="store/writer.py",
        old="                if left is not None and left <= 0:",
        new="                if False:",
        tests=("tests/store/test_degraded.py::test_a_disk_that_hangs_is_noticed_though_nobody_waits_for_it",),
    ),
    Mutant(
        keeps="I6",
        without="a refused write is not tried again",
        file="store/disk.py",
        old="        self._next_attempt = now + pause",
        new="        self._next_attempt = now + 1e9",
        tests=("tests/store/test_degraded.py::test_a_full_disk_degrades_to_memory_and_recovers_by_itself",),
    ),
    Mutant(
        keeps="I7",
        without="a lost event is not told as a gap",
        file="store/backlog.py",
        old="            self.gone = max(self.gone, row.seq)\n",
        new="",
        tests=("tests/store/test_backlog.py::test_over_the_limit_the_oldest_events_are_given_up_and_counted",),
    ),
)
