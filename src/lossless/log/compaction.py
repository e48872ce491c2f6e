"""Compaction: of records with the same key the last one stays, at its old offset.

- Only what is decided and flushed, in segments that are closed, is looked at.
- A tombstone (no value) says that the key is gone. It stays until `delete_retention_ms` after it
  was first seen here, so that a consumer who is on its way hears of it. The batch keeps that moment
  in place of its first timestamp, as Kafka does (KIP-534).
- Records of aborted transactions go. Markers stay: a producer whose marker went would look as if it
  had its transaction open.
- The last batch of a producer stays even without records: it holds the sequence.
- Records without a key have no business in a compacted log, and go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lossless.log.batch import Batch, Record, build
from lossless.log.compression import Compression
from lossless.log.index import AbortedTransaction
from lossless.log.producers import Producers


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What is known of the log before anything is left out."""

    latest: dict[bytes, int]  # the last offset of every key
    aborted: Sequence[AbortedTransaction]
    producers: Producers
    now_ms: int
    delete_retention_ms: int

    @classmethod
    def of(
        cls,
        batches: Iterable[Batch],
        aborted: Sequence[AbortedTransaction],
        producers: Producers,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> Compaction:
        latest: dict[bytes, int] = {}
        for batch in batches:
            if not batch.is_control and not _is_aborted(batch, aborted):
                records = batch.readable_records()
                latest.update((r.key, r.offset) for r in records if r.key is not None)
        return cls(
            latest=latest,
            aborted=aborted,
            producers=producers,
            now_ms=now_ms,
            delete_retention_ms=delete_retention_ms,
        )

    def apply(self, batch: Batch) -> Batch | None:
        """What is left of a batch: itself, a smaller one with the same range, or nothing."""
        if batch.is_control:
            return batch
        records = [] if _is_aborted(batch, self.aborted) else batch.readable_records()
        kept = [record for record in records if self._stays(record, batch)]
        if not kept and not self._is_last_of_its_producer(batch):
            return None
        has_tombstone = any(record.value is None for record in kept)
        horizon_ms = batch.delete_horizon_ms
        if has_tombstone and horizon_ms is None:
            horizon_ms = self.now_ms + self.delete_retention_ms
        elif len(kept) == batch.records_count:
            return batch
        return build(
            kept,
            leader_epoch=batch.leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            compression=batch.compression if kept else Compression.NONE,
            transactional=batch.is_transactional,
            log_append_time_ms=batch.max_timestamp_ms if batch.has_log_append_time else None,
            delete_horizon_ms=horizon_ms if has_tombstone else None,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
        )

    def _stays(self, record: Record, batch: Batch) -> bool:
        if record.key is None or self.latest[record.key] != record.offset:
            return False
        horizon_ms = batch.delete_horizon_ms
        return record.value is not None or horizon_ms is None or self.now_ms < horizon_ms

    def _is_last_of_its_producer(self, batch: Batch) -> bool:
        known = self.producers.get(batch.producer_id)
        return known is not None and known.last_offset == batch.last_offset


def _is_aborted(batch: Batch, aborted: Sequence[AbortedTransaction]) -> bool:
    return batch.is_transactional and any(
        entry.producer_id == batch.producer_id
        and entry.first_offset <= batch.base_offset <= entry.last_offset
        for entry in aborted
    )
