from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from blobmap import ManifestStore
from blobmap.errors import UnavailableError, UsageError
from blobmap.storage import StorageOptions, open_storage
from consumer.catalog import load_catalog
from tests.support.manifests import manifest

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = StorageOptions()


def write(root: Path, *scopes: str) -> str:
    store = ManifestStore(open_storage(str(root), OPTIONS, create=True))
    for scope in scopes:
        store.write(manifest(scope), etag=None)
    return str(root)


async def test_each_bucket_has_the_manifests_of_its_own_root(tmp_path: Path) -> None:
    roots = {
        "one": (write(tmp_path / "one", "s.zarr", "deep/er.zarr"), OPTIONS),
        "two": (write(tmp_path / "two"), OPTIONS),
    }
    tries = await load_catalog(roots, give_up_s=1)
    assert tries.keys() == {"one", "two"}
    assert tries["one"].lookup("deep/er.zarr/t/c/25/0").blob_id == "b_t_2"
    assert tries["two"].lookup("deep/er.zarr/t/c/25/0").kind == "unmanaged"


async def test_a_broken_manifest_is_told_and_spoils_no_other(tmp_path: Path) -> None:
    root = write(tmp_path / "one", "s.zarr")
    broken = tmp_path / "one/broken.zarr"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    with capture_logs() as logs:
        tries = await load_catalog({"b": (root, OPTIONS)}, give_up_s=1)
    assert tries["b"].lookup("s.zarr/t/c/0/0").kind == "blob"
    (problem,) = [line for line in logs if line["event"] == "manifest skipped"]
    assert problem["bucket"] == "b"
    assert "broken.zarr" in problem["problem"]


async def test_a_root_that_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no directory"):
        await load_catalog({"b": (str(tmp_path / "absent"), OPTIONS)}, give_up_s=1)


async def test_a_root_that_cannot_be_reached_is_given_up_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    options = StorageOptions(endpoint="http://127.0.0.1:1", region="us-east-1", allow_http=True, timeout_s=2)
    with pytest.raises(UnavailableError) as caught:
        await load_catalog({"cordex": ("s3://m/cordex", options)}, give_up_s=0.1)
    message = str(caught.value)
    assert message.startswith("cannot read the manifests of bucket 'cordex' at s3://m/cordex, tried for 0.1 s: ")
    assert "\n" not in message
