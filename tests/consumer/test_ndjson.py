from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import pytest

from blobmap.errors import RefusedError, UnavailableError
from consumer.ndjson import NdjsonSink
from consumer.records import Message, objects_message

if TYPE_CHECKING:
    from pathlib import Path


def message(*keys: str) -> Message:
    return objects_message("q", [json.dumps({"key": key}, ensure_ascii=False).encode() for key in keys])


async def test_a_line_for_each_record(tmp_path: Path) -> None:
    sink = NdjsonSink(str(tmp_path / "out.ndjson"))
    await sink.publish(message("a", "line\nbreak", "日本\u2028"))
    await sink.publish(message("b"))
    lines = (tmp_path / "out.ndjson").read_bytes().split(b"\n")
    sink.close()
    assert [json.loads(line)["key"] for line in lines[:-1]] == ["a", "line\nbreak", "日本\u2028", "b"]
    assert lines[-1] == b""


async def test_messages_at_once_do_not_mix(tmp_path: Path) -> None:
    sink = NdjsonSink(str(tmp_path / "out.ndjson"))
    await asyncio.gather(*(sink.publish(message(*(f"{n}-{m}" * 50 for m in range(20)))) for n in range(20)))
    sink.close()
    keys = [json.loads(line)["key"] for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    assert len(set(keys)) == 400


async def test_a_file_is_appended_to(tmp_path: Path) -> None:
    for key in ("a", "b"):
        sink = NdjsonSink(str(tmp_path / "out.ndjson"))
        await sink.publish(message(key))
        sink.close()
    assert len((tmp_path / "out.ndjson").read_text().splitlines()) == 2


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="Is a directory"):
        NdjsonSink(str(tmp_path))


async def test_half_a_line_is_never_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = NdjsonSink(str(tmp_path / "out.ndjson"))
    await sink.publish(message("a"))
    written: list[int] = []

    def full_after_three_bytes(descriptor: int, data: bytes) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(real_write(descriptor, data[:3]))
        return written[0]

    real_write = os.write
    monkeypatch.setattr(os, "write", full_after_three_bytes)
    with pytest.raises(UnavailableError, match="No space left on device"):
        await sink.publish(message("b"))
    monkeypatch.undo()
    await sink.publish(message("c"))
    sink.close()
    assert [json.loads(line)["key"] for line in (tmp_path / "out.ndjson").read_text().splitlines()] == ["a", "c"]


async def test_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    sink = NdjsonSink("-")
    await sink.publish(message("a", "b"))
    sink.close()
    assert [json.loads(line)["key"] for line in capfdbinary.readouterr().out.splitlines()] == ["a", "b"]


async def test_a_reader_that_has_gone_away_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr("consumer.ndjson._STANDARD_OUTPUT", writing)
    with pytest.raises(RefusedError, match="standard output: nobody reads it any more"):
        await NdjsonSink("-").publish(message("a"))
    os.close(writing)
