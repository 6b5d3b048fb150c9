from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blobmap.errors import UsageError
from blobmap.roots import check_roots

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT = (".snapshot",)


@pytest.mark.parametrize(
    ("data", "manifests", "exclude"),
    [
        ("s3://cordex", "s3://waterpark-blobmap", DEFAULT),
        ("s3://cordex", "s3://cordex-blobmap", DEFAULT),
        ("s3://b/data", "s3://b/data-manifests", DEFAULT),
        ("s3://b/data", "s3://b/manifests", DEFAULT),
        ("s3://b", "/b", DEFAULT),
        ("s3://b", "s3://b/.blobmap", (".blobmap",)),
        ("s3://b", "s3://b/x/manifests/y", ("manifests",)),
        ("s3://b/x/data", "s3://b", ("data",)),
        ("/pool/data", "/pool/manifests", DEFAULT),
        ("/pool", "/pool/.blobmap", (".blobmap",)),
        ("file:///pool", "/pool/.blobmap", (".blobmap",)),
    ],
)
def test_roots_that_are_apart(data: str, manifests: str, exclude: tuple[str, ...]) -> None:
    check_roots(data, manifests, exclude)


@pytest.mark.parametrize(
    ("data", "manifests", "exclude", "said"),
    [
        ("s3://b", "s3://b", DEFAULT, "are one place"),
        ("s3://b/", "s3://b", DEFAULT, "are one place"),
        ("/pool", "file:///pool/", DEFAULT, "are one place"),
        ("/pool/a%20b", "file:///pool/a%2520b", DEFAULT, "are one place"),
        ("s3://b", "s3://b/m", DEFAULT, r"--manifests 's3://b/m' lies in --data 's3://b'.*--exclude 'm'"),
        ("s3://b/x/data", "s3://b", DEFAULT, r"--data 's3://b/x/data' lies in --manifests 's3://b'.*--exclude 'x'"),
        ("/pool", "/pool/.blobmap", DEFAULT, r"lies in --data '/pool'.*--exclude '.blobmap'"),
        ("/pool/data", "/pool", DEFAULT, r"--data '/pool/data' lies in --manifests '/pool'"),
        # What is ours in a manifest root is in every one of them, so it tells nothing apart.
        ("/pool/.blobmap", "/pool", (".blobmap",), "lies in --manifests"),
        # A segment above both tells nothing apart either.
        ("/pool", "/pool/m", ("pool",), "lies in --data"),
    ],
)
def test_roots_that_are_nested(data: str, manifests: str, exclude: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_roots(data, manifests, exclude)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "data/inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data/inside")
    with pytest.raises(UsageError, match="lies in --data"):
        check_roots(str(tmp_path / "data"), str(tmp_path / "link"), DEFAULT)


@pytest.mark.parametrize("path", ["~nobody-has-this-name/x", "a\0b"])
def test_what_is_no_path_is_left_to_whoever_opens_it(path: str) -> None:
    check_roots(path, "/pool", DEFAULT)
