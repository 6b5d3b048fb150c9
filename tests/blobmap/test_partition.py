from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from blobmap.claims import own_claims
from blobmap.decisions import Before, Claim, Difference, Plan
from blobmap.errors import UsageError
from blobmap.identifiers import array_id, hashed_id
from blobmap.manifest import Blob, Bucket, Manifest, Pin
from blobmap.partition import plan_partition
from blobmap.policy import Policy
from tests.support.measured import GIB, MIB, decide, measured, plan
from tests.support.stores import RawArray

if TYPE_CHECKING:
    from blobmap.tally import Measured

TAS = measured(RawArray("tas", (10_266, 8, 8), (1, 8, 8), ["time", "y", "x"], dtype="string"), 45.8 * MIB)
PR = measured(RawArray("pr", (10_266, 8, 8), (1, 8, 8), ["time", "y", "x"], dtype="string"), 2 * MIB)
TIME = measured(RawArray("time", (10_266,), (512,), ["time"]), 3072)
CELL = measured(RawArray("cell", (12 * 4**10,), (12 * 4**10,), ["cell"], dtype="int64"), 96 * MIB)
CRS = measured(RawArray("crs", (), ()), 4)
SMALL = measured(RawArray("small", (4, 4), (4, 4), ["y", "x"]), 64)


def before(first: Plan, arrays: list[Measured], **changes: object) -> Before:
    manifest = replace(first.manifest, **changes)  # type: ignore[arg-type]  # fields of a manifest
    return Before(manifest, manifest.epoch, own_claims(manifest, arrays))


def test_the_table_of_the_seed_comes_out() -> None:
    hus = measured(RawArray("hus", (1027, 8), (1, 8), ["time", "x"], dtype="string", inner=(1, 4)), 457.7 * MIB)
    rows = decide(TAS, hus, PR, TIME)
    assert {path: row.verdict for path, row in rows.items()} == {"tas": "cut", "hus": "cut", "pr": "cut", "time": "hot"}
    found = [rows[path].blobs for path in ("tas", "hus", "pr")]
    assert [(row.id, row.first, row.last, row.width) for row in found if row] == [
        ("b_tas", 0, 5, 2048),
        ("b_hus", 0, 8, 128),
        ("b_pr", 0, 0, 32768),
    ]
    assert rows["hus"].sharded
    assert rows["tas"].mean_object_bytes == pytest.approx(45.8 * MIB)
    assert rows["time"].blobs is None


def test_a_first_manifest_says_what_is_hot_and_how_each_array_is_cut() -> None:
    manifest = plan([TAS, TIME, SMALL, CRS]).manifest
    assert manifest.epoch == 1
    assert manifest.blobs == (Blob("b_tas", ("tas/c",), Bucket(0, 2048, "v3_slash")),)
    assert manifest.hot_always == (
        "**/.zarray",
        "**/.zattrs",
        "**/.zgroup",
        "**/.zmetadata",
        "**/zarr.json",
        "crs/**",
        "small/**",
        "time/**",
    )
    assert manifest.policy == Policy().to_json()


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (RawArray("a", (9, 9), (1, 9)), Blob("b_a", ("a/c",), Bucket(0, 1, "v3_slash"))),
        (RawArray("a", (9, 9), (9, 1), separator="."), Blob("b_a", ("a",), Bucket(2, 1, "v2_flat"))),
        (RawArray("a", (9, 9), (9, 1), format=2), Blob("b_a", ("a",), Bucket(1, 1, "v2_slash"))),
        (RawArray("a", (9, 9), (9, 1), format=2, separator="."), Blob("b_a", ("a",), Bucket(1, 1, "v2_flat"))),
        (RawArray("a", (9, 9), (9, 1), keys="v2", separator="."), Blob("b_a", ("a",), Bucket(1, 1, "v2_flat"))),
        (RawArray("a", (9, 9), (9, 1), keys="v2"), Blob("b_a", ("a",), Bucket(1, 1, "v2_slash"))),
        (RawArray("", (9, 9), (1, 9)), Blob(hashed_id(""), ("c",), Bucket(0, 1, "v3_slash"))),
        (RawArray("", (9, 9), (1, 9), format=2), Blob(hashed_id(""), ("",), Bucket(0, 1, "v2_slash"))),
        (RawArray("x/c", (9,), (1,)), Blob("b_x__c", ("x/c/c",), Bucket(0, 1, "v3_slash"))),
    ],
)
def test_a_rule_is_spelled_as_the_arrays_keys_are(raw: RawArray, rule: Blob) -> None:
    assert plan([measured(raw, 60 * GIB)]).manifest.blobs == (rule,)


@pytest.mark.parametrize("array", [TIME, CELL, CRS], ids=lambda array: array.layout.path)
def test_coordinates_and_scalars_are_hot_at_any_size(array: Measured) -> None:
    for size in (0, 4, GIB, 2**50):
        row = decide(replace(array, stored_bytes=size))[array.layout.path]
        assert row.verdict == "hot"
        assert row.reason.endswith(": always hot")


def test_small_arrays_without_a_rule_are_hot_and_others_get_one_also_with_one_object() -> None:
    policy = Policy(t_hot_bytes=1000)
    sizes = {"a": 999, "b": 1000, "c": 0}
    rows = decide(*(measured(RawArray(name, (1,), (1,), ["x"]), size) for name, size in sizes.items()), policy=policy)
    assert {path: row.verdict for path, row in rows.items()} == {"a": "hot", "b": "cut", "c": "hot"}
    assert rows["a"].reason == "999 B stored, less than 1000 B, and no rule yet: hot"


def test_with_no_hot_size_an_empty_array_is_cut_by_what_it_will_hold() -> None:
    nothing = Policy(t_hot_bytes=0)
    row = decide(measured(RawArray("a", (100, 1024, 256), (1, 1024, 256))), policy=nothing)["a"]
    assert row.blobs is not None
    assert row.blobs.width == 65536
    unknown = decide(measured(RawArray("a", (100,), (1,), dtype="string")), policy=nothing)["a"]
    assert unknown.verdict == "hot"
    assert unknown.reason.startswith("nothing stored")


def aux(size: float) -> list[Measured]:
    tas = measured(RawArray("tas", (9, 4), (1, 4), ["t", "x"], attributes={"coordinates": "lat"}), GIB)
    return [tas, measured(RawArray("lat", (4, 4), (4, 4), ["y", "x"]), size)]


def test_auxiliary_coordinates_are_hot_up_to_their_own_limit_and_archivable_beyond() -> None:
    rows = decide(*aux(GIB))
    assert rows["lat"].verdict == "hot"
    assert rows["lat"].reason == (
        "auxiliary coordinate, named in 'coordinates' of 'tas': hot up to 1.0 GiB without a rule"
    )
    beyond = plan(aux(GIB + 1))
    assert {row.path: row.verdict for row in beyond.decisions} == {"lat": "cut", "tas": "cut"}
    assert beyond.warnings == ("'lat' is an auxiliary coordinate of 1.0 GiB, more than 1.0 GiB: archivable",)
    assert beyond.decisions[0].reason.endswith("; auxiliary coordinate beyond what is kept hot")


def test_an_auxiliary_coordinate_that_has_a_rule_keeps_it() -> None:
    arrays = aux(2 * GIB)
    first = plan(arrays)
    shrunk = [arrays[0], replace(arrays[1], stored_bytes=10)]
    again = plan(shrunk, before(first, shrunk))
    assert not again.changed
    assert {row.path: row.verdict for row in again.decisions} == {"lat": "kept", "tas": "kept"}


def test_what_could_be_a_coordinate_is_hot_and_said_unless_it_has_a_rule() -> None:
    arrays = [
        measured(RawArray("v", (400, 4), (1, 4), format=2), GIB),
        measured(RawArray("x", (400,), (400,), format=2), GIB),
    ]
    found = plan(arrays)
    assert {row.path: row.verdict for row in found.decisions} == {"v": "cut", "x": "hot"}
    assert len(found.warnings) == 1
    assert "'x' could be a coordinate" in found.warnings[0]
    alone = plan(arrays[1:])
    assert alone.decisions[0].verdict == "cut"
    assert plan(arrays, before(alone, arrays)).decisions[1].verdict == "kept"


def test_a_run_over_the_same_changes_nothing() -> None:
    arrays = [TAS, TIME, SMALL]
    first = plan(arrays)
    again = plan(arrays, before(first, arrays))
    assert not again.changed
    assert again.manifest == first.manifest
    assert again.difference == Difference()


def test_new_arrays_are_added_and_what_exists_is_carried_over_as_it_is() -> None:
    foreign = Blob("their_name", ("tas/c", "gone"), Bucket(0, 7, "v3_slash"))
    manifest = Manifest("st.zarr", 4, blobs=(foreign,), pinned=(Pin("tas", "mine"),), policy={"t_max_bytes": 5, "z": 1})
    arrays = [TAS, PR]
    found = plan(arrays, Before(manifest, 4, own_claims(manifest, arrays)), policy=Policy())
    assert found.changed
    assert found.manifest.epoch == 5
    assert found.manifest.blobs == (foreign, Blob("b_pr", ("pr/c",), Bucket(0, 32768, "v3_slash")))
    assert found.manifest.pinned == manifest.pinned
    assert found.manifest.policy == {"z": 1, **Policy().to_json()}
    assert found.difference.added == ("b_pr",)
    rows = {row.path: row for row in found.decisions}
    assert rows["tas"].verdict == "kept"
    assert rows["tas"].blobs is not None
    assert (rows["tas"].blobs.id, rows["tas"].blobs.last, rows["tas"].blobs.width) == ("their_name", 1466, 7)
    assert rows["tas"].reason == "kept: rule 'their_name', 7 indices of axis 0 make 320.6 MiB now"


def test_a_rule_that_divides_no_axis_is_kept_and_said() -> None:
    levels = measured(RawArray("0/1", (9, 9), (1, 9), format=2), 60 * GIB)
    whole = Manifest("st.zarr", 1, blobs=(Blob("b_root", ("",), Bucket(0, 4, "v2_slash")),))
    (row,) = plan([levels], Before(whole, 1, own_claims(whole, [levels]))).decisions
    assert row.reason == "kept: rule 'b_root' divides a part of the keys that is no axis of this array"


def test_what_another_scope_claims_is_left_alone() -> None:
    claims = {
        "tas": Claim("", Blob("b_root", ("",), None), None),
        "pr": Claim("st.zarr/x", Blob("b_x", ("pr/c",), Bucket(0, 4, "v3_slash")), 0),
        "cell2": Claim("", None, None),
    }
    cell2 = measured(RawArray("cell2", (12, 4), (1, 4), ["cell", "x"]), 96 * MIB)
    found = plan([TAS, PR, cell2], Before(others=claims))
    assert found.manifest.blobs == ()
    rows = {row.path: row for row in found.decisions}
    assert {row.verdict for row in rows.values()} == {"elsewhere"}
    assert rows["cell2"].reason == "kept hot by the manifest of scope ''"
    assert rows["tas"].reason == "claimed by the manifest of scope ''"
    assert rows["pr"].blobs is not None
    assert rows["pr"].blobs.last == 2566


def test_a_rule_over_a_coordinate_stays_and_the_coordinate_is_hot_all_the_same() -> None:
    whole = Manifest("st.zarr", 1, blobs=(Blob("b_root", ("",), None),))
    found = plan([TAS, TIME], Before(whole, 1, own_claims(whole, [TAS, TIME])))
    assert found.manifest.blobs == whole.blobs
    assert "time/**" in found.manifest.hot_always
    rows = {row.path: row for row in found.decisions}
    assert rows["time"].verdict == "hot"
    assert rows["tas"].reason == "kept: rule 'b_root' is one blob of 459.2 GiB, whatever is added"
    assert found.warnings == ("rule 'b_root' claims 'time', which is always hot: coordinate of its dimension 'time'",)


def test_a_hot_array_that_has_outgrown_its_size_gets_its_rule_at_the_next_cut() -> None:
    small = replace(TAS, stored_bytes=100)
    first = plan([small])
    assert first.decisions[0].verdict == "hot"
    found = plan([TAS], before(first, [TAS]))
    assert found.difference.added == ("b_tas",)
    assert found.difference.hot_removed == ("tas/**",)
    assert found.manifest.epoch == 2


def test_an_array_that_shrinks_keeps_its_rule_except_under_force() -> None:
    first = plan([TAS])
    shrunk = [replace(TAS, objects=1, stored_bytes=100)]
    assert not plan(shrunk, before(first, shrunk)).changed
    forced = plan(shrunk, before(first, shrunk), force=True)
    assert forced.manifest.blobs == ()
    assert forced.difference.removed == ("b_tas",)
    assert forced.decisions[0].verdict == "hot"


def test_force_makes_rules_anew_keeps_pins_and_policy_and_says_what_moved() -> None:
    arrays = [TAS, PR]
    first = plan(arrays, policy=Policy(t_max_bytes=50 * GIB))
    now = before(first, arrays, pinned=(Pin("tas", "mine"),), epoch=7)
    grown = [replace(TAS, stored_bytes=4 * TAS.stored_bytes), PR]
    found = plan(grown, now, force=True)
    assert found.manifest.epoch == 8
    assert found.manifest.pinned == (Pin("tas", "mine"),)
    assert found.manifest.policy == first.manifest.policy
    assert found.difference == Difference(moved=("b_tas",))
    unchanged = plan(arrays, now, force=True)
    assert not unchanged.changed
    other = plan(arrays, now, force=True, policy=Policy())
    assert other.manifest.policy == Policy().to_json()
    assert other.difference.moved == ("b_pr", "b_tas")


def test_a_policy_is_for_what_is_cut_now_and_said_where_that_is_nothing() -> None:
    first = plan([TAS])
    given = Policy(t_max_bytes=10 * GIB)
    same = plan([TAS], before(first, [TAS]), policy=given)
    assert not same.changed
    assert same.manifest.policy == Policy().to_json()
    assert same.warnings == (
        "the given policy changes nothing: cuts that exist keep theirs, only force makes them anew",
    )
    assert plan([TAS], before(first, [TAS]), policy=Policy()).warnings == ()
    arrays = [TAS, PR]
    added = plan(arrays, before(first, arrays), policy=given)
    assert added.manifest.policy == given.to_json()
    assert added.manifest.blobs[0] == first.manifest.blobs[0]
    without = plan(arrays, before(first, arrays, policy=None))
    assert without.manifest.policy == Policy().to_json()
    recorded = plan(arrays, before(first, arrays, policy={"t_max_bytes": 10 * GIB}))
    assert recorded.manifest.policy == {"t_max_bytes": 10 * GIB}
    assert recorded.manifest.blobs[1].bucket == Bucket(0, 4096, "v3_slash")


def test_a_recorded_policy_that_cannot_cut_is_named() -> None:
    first = plan([TAS])
    bad = before(first, [TAS], policy={"t_max_bytes": 0})
    with pytest.raises(UsageError, match=r"scope 'st\.zarr' records no usable policy .*t_max_bytes is 0"):
        plan([TAS], bad)
    assert not plan([TAS], bad, policy=Policy()).changed


def test_the_epoch_goes_on_above_the_highest_ever_written() -> None:
    assert plan([TAS], Before(epoch=11)).manifest.epoch == 12


def test_what_no_rule_can_express_is_left_out_and_said() -> None:
    fanout = measured(RawArray("f", (9, 9), (1, 9), members={"chunk_key_encoding": {"name": "fanout"}}), GIB)
    found = plan([fanout])
    assert found.manifest.blobs == ()
    assert found.decisions[0].verdict == "unclaimed"
    assert found.warnings == (f"'f' gets no rule: {fanout.obstacle}",)
    small = plan([replace(fanout, stored_bytes=5)])
    assert small.decisions[0].verdict == "hot"
    assert small.warnings == (f"'f' is hot while small, and no rule can be written for it: {fanout.obstacle}",)


def test_a_name_that_no_hot_pattern_can_spell_is_left_out() -> None:
    found = plan([measured(RawArray("**/x", (9,), (9,), ["x"]), 10), measured(RawArray("star*", (9,), (9,)), 10)])
    assert [row.verdict for row in found.decisions] == ["unclaimed", "hot"]
    assert found.manifest.hot_always[-1] == "star*/**"
    assert found.warnings == ("'**/x' is left without a rule: no hot pattern can spell its name",)


def test_an_array_with_another_inside_is_not_made_hot_over_it() -> None:
    arrays = [
        measured(RawArray("a", (9,), (9,), ["x"]), 10),
        measured(RawArray("a/g/b", (9, 9), (1, 9), ["y", "x"]), GIB),
    ]
    found = plan(arrays)
    assert {row.path: row.verdict for row in found.decisions} == {"a": "unclaimed", "a/g/b": "cut"}
    assert found.warnings == ("'a' is left without a rule: its hot pattern would cover 'a/g/b'",)


def rewritten(raw: RawArray, size: float = 60 * GIB) -> list[Measured]:
    return [measured(raw, size)]


def test_an_array_rewritten_in_another_format_gets_a_rule_beside_the_old_one() -> None:
    old = rewritten(RawArray("a", (9, 9), (1, 9), format=2))
    new = rewritten(RawArray("a", (9, 9), (1, 9)))
    first = plan(old)
    found = plan(new, before(first, new))
    assert [(blob.id, blob.prefixes) for blob in found.manifest.blobs] == [
        ("b_a", ("a",)),
        (hashed_id("a"), ("a/c",)),
    ]
    third = rewritten(RawArray("a", (9, 9), (1, 9), separator="."))
    held = plan(third, before(found, third))
    assert held.decisions[0].verdict == "unclaimed"
    assert held.warnings == (
        "'a' gets no rule: rule 'b_a' has its place and does not fit its objects; only force can replace it",
    )
    forced = plan(third, before(found, third), force=True)
    assert forced.manifest.blobs == (Blob("b_a", ("a",), Bucket(1, 1, "v2_flat")),)
    assert forced.difference == Difference(removed=(hashed_id("a"),), moved=("b_a",))


def test_a_new_id_never_meets_one_that_is_carried_over() -> None:
    theirs = Manifest("st.zarr", 1, blobs=(Blob("b_pr", ("other",), None), Blob(hashed_id("q"), ("z",), None)))
    taken = Manifest("st.zarr", 1, blobs=(Blob("b_pr", ("u",), None), Blob(hashed_id("pr"), ("v",), None)))
    assert [blob.id for blob in plan([PR], Before(theirs, 1)).manifest.blobs] == [
        "b_pr",
        hashed_id("q"),
        hashed_id("pr"),
    ]
    none_left = plan([PR], Before(taken, 1))
    assert none_left.decisions[0].verdict == "unclaimed"
    assert "rule 'b_pr' has its place" in none_left.warnings[0]


def test_ids_do_not_depend_on_the_order_of_a_listing() -> None:
    arrays = [measured(RawArray(path, (9, 9), (1, 9)), GIB) for path in ("a/b", "a_b", "A/b", "tas", "c/c")]
    assert plan(arrays).manifest == plan(reversed(arrays)).manifest
    assert {blob.id for blob in plan(arrays).manifest.blobs} == {array_id(array.layout.path) for array in arrays}


def test_a_cut_that_has_become_too_wide_is_said() -> None:
    wide = RawArray("a", (100, 40), (1, 10), ["time", "x"], dtype="string")
    first = plan([measured(wide, GIB)])
    assert first.manifest.blobs[0].bucket == Bucket(0, 25, "v3_slash")
    wider = [measured(RawArray("a", (100, 80), (1, 10), ["time", "x"], dtype="string"), GIB)]
    found = plan(wider, before(first, wider))
    assert found.warnings == (
        (
            "'a': a blob of 'b_a' holds 200.0 GiB now, more than the 100.0 GiB that its cut promised; "
            "only force cuts it anew"
        ),
    )
    larger = [measured(wide, 3 * GIB)]
    assert plan(larger, before(first, larger)).warnings == ()
    unknown = before(first, larger, provenance=None)
    assert plan(larger, unknown).warnings == ()
    much_larger = [measured(wide, 9 * GIB)]
    assert "more than the 800.0 GiB" in plan(much_larger, before(first, much_larger, provenance=None)).warnings[0]
    empty = [measured(wide, 0, objects=0)]
    assert plan(empty, before(first, empty)).warnings == ()


def test_an_axis_that_grew_since_the_last_partition_is_the_one_that_grows() -> None:
    small = measured(RawArray("a", (9, 50), (1, 1), ["run", "x"], dtype="string"), 10)
    grown = measured(RawArray("a", (12, 50), (1, 1), ["run", "x"], dtype="string"), MIB)
    first = plan([small])
    found = plan([grown], before(first, [grown]))
    assert found.decisions[0].reason.startswith("axis 0 (run): grows (from 9 to 12 since the last partition); ")
    reshaped = measured(RawArray("a", (12, 50, 1), (1, 1, 1), dtype="string"), MIB)
    assert plan([reshaped], before(first, [reshaped])).decisions[0].reason.startswith("axis 1: has the most")
    waiting = measured(RawArray("a", (0, 50), (1, 1), ["run", "x"], dtype="float64"))
    found = plan([waiting], policy=Policy(t_hot_bytes=0))
    assert found.decisions[0].reason.startswith("axis 0 (run): grows (it has no element yet); ")


@pytest.mark.parametrize("entry", [5, None, {"shape": "12"}, {"shape": [1, "x"]}, {"planned_object_bytes": "1"}])
def test_foreign_provenance_says_nothing_and_stays(entry: object) -> None:
    first = plan([TAS])
    arrays = [TAS, PR]
    provenance = {"pr": entry, "tas": {"planned_object_bytes": 0, "planned_t_max_bytes": 1}, "other": entry}
    now = before(first, arrays, provenance=provenance)
    found = plan(arrays, now)
    assert now.manifest is not None
    assert now.manifest.provenance is not None
    assert found.manifest.provenance is not None
    assert found.manifest.provenance["other"] == now.manifest.provenance["other"]


def test_measured_numbers_are_kept_beside_what_was_planned() -> None:
    first = plan([TAS, TIME])
    assert first.manifest.provenance is not None
    assert first.manifest.provenance["time"] == {
        "objects": 21,
        "grid_objects": 21,
        "stored_bytes": 21 * 3072,
        "uncompressed_object_bytes": 2048,
        "shape": (10_266,),
        "sharded": False,
    }
    arrays = [replace(TAS, objects=5, stored_bytes=500), PR]
    found = plan(arrays, before(first, arrays))
    assert found.manifest.provenance is not None
    tas = found.manifest.provenance["tas"]
    assert isinstance(tas, dict | type(found.manifest.provenance))
    assert (tas["objects"], tas["planned_object_bytes"]) == (5, int(45.8 * MIB))
    assert "time" in found.manifest.provenance


def test_what_could_not_be_read_this_time_stays_hot() -> None:
    first = plan([TAS, TIME, CELL, measured(RawArray("g/x", (9,), (9,), ["x"]), 1)])
    for unread, kept in (
        (["time"], ["time/**"]),
        (["g"], ["g/x/**"]),
        ([""], ["cell/**", "g/x/**", "time/**"]),
        ([], []),
    ):
        found = plan_partition("st.zarr", [], {}, Before(first.manifest, 1), unread=unread)
        assert [pattern for pattern in found.manifest.hot_always if not pattern.startswith("**/")] == kept
    assert plan_partition("st.zarr", [], {}, Before(), unread=["x"]).manifest.blobs == ()


def test_a_foreign_order_of_hot_patterns_is_no_change() -> None:
    first = plan([TAS, TIME])
    turned = before(first, [TAS, TIME], hot_always=tuple(reversed(first.manifest.hot_always)))
    assert not plan([TAS, TIME], turned).changed


def test_reasons_and_warnings_are_one_line_each() -> None:
    arrays = [TAS, PR, TIME, CELL, CRS, SMALL, *aux(2 * GIB)[1:]]
    found = plan(arrays)
    assert not [line for line in (*found.warnings, *(row.reason for row in found.decisions)) if re.search(r"\n", line)]
