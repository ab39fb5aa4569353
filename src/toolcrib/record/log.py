"""A recorder in memory: the calls that ended, the newest last, bounded in number."""

from collections import deque
from collections.abc import Iterator

from ..core import CallRecord, Recorder


class CallLog(Recorder):
    """Keeps the records of the last *size* calls that ended. With *with_content*, with arguments and results."""

    def __init__(self, size: int = 1000, *, with_content: bool = False) -> None:
        self.with_content = with_content
        self._records: deque[CallRecord] = deque(maxlen=size)

    async def finished(self, record: CallRecord, /) -> None:
        self._records.append(record)

    def __iter__(self) -> Iterator[CallRecord]:
        return iter(tuple(self._records))

    def __len__(self) -> int:
        return len(self._records)
