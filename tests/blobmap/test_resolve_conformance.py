"""Every answer of the conformance stores comes out, and every one that was frozen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blobmap.manifest import parse_manifest
from blobmap.resolve import Resolution, Trie
from tests.support import brute_force, conformance

CASES = conformance.cases()
FROZEN = Path(__file__).parents[1] / "golden" / "resolutions.json"


def spoken(resolution: Resolution) -> str:
    return resolution.blob_id or resolution.kind


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_answer_comes_out(case: conformance.Case) -> None:
    manifest = parse_manifest(case.manifest, source=str(case))
    trie = Trie()
    trie.add(manifest)
    answers = list(case.answers())
    keys = [key for key, _ in answers]
    expected = [answer for _, answer in answers]
    assert [spoken(trie.lookup(key)) for key in keys] == expected
    assert [spoken(resolution) for resolution in trie.lookup_many(keys)] == expected
    assert [spoken(resolution) for resolution in trie.lookup_many(sorted(keys))] == [
        answer for _, answer in sorted(answers)
    ]
    assert [spoken(brute_force.resolve([manifest], key)) for key in keys] == expected


def test_nothing_is_left_out() -> None:
    checked = sum(1 for case in CASES for _ in case.answers())
    assert (len(conformance.stores()), len(CASES), checked) == (21, 86, 16_961)


def test_all_stores_of_one_policy_live_in_one_trie() -> None:
    for policy in ("default", "one", "small", "tight"):
        together = [case for case in CASES if case.policy == policy]
        trie = Trie()
        manifests = [parse_manifest(case.manifest, source=str(case)) for case in together]
        assert trie.add_all(manifests) == ()
        assert trie.scopes() == tuple(sorted(manifest.scope for manifest in manifests))
        differing = [
            (key, answer, resolution)
            for case in together
            for key, answer in case.answers()
            if not key.startswith("elsewhere/") and spoken(resolution := trie.lookup(key)) != answer
        ]
        assert differing == []


def test_a_key_keeps_its_blob_for_ever() -> None:
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))
    manifests = [parse_manifest(json.dumps(document).encode(), source="frozen") for document in frozen["manifests"]]
    trie = Trie()
    trie.add_all(manifests)
    answers = [(key, Resolution(*answer)) for key, *answer in frozen["answers"]]
    assert [(key, trie.lookup(key)) for key, _ in answers] == answers
    assert [(key, brute_force.resolve(manifests, key)) for key, _ in answers] == answers
