"""The settings and the data folder of a standalone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar_cli.standalone.data_folder import DataFolder, FolderTaken, remove_abandoned
from magnetar_cli.standalone.settings import StandaloneSettings
from magnetar_wire.configuration import InvalidConfiguration, load


def test_all_settings_of_broker_and_bookie_are_accepted() -> None:
    loaded = load(StandaloneSettings, flags=["max_message_size=1000", "read_only=true", "grpc_port=0"])
    assert (loaded.max_message_size, loaded.read_only, loaded.grpc_port) == (1000, True, 0)
    with pytest.raises(InvalidConfiguration, match="did you mean 'max_message_size'"):
        load(StandaloneSettings, flags=["max_mesage_size=1000"])
    with pytest.raises(InvalidConfiguration, match="grpc_port"):
        load(StandaloneSettings, flags=["grpc_port=70000"])


def test_ephemeral_excludes_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"leave out ephemeral \(--ephemeral\), or data_folder \(--data\)"):
        load(StandaloneSettings, flags=["ephemeral=true"], environment={"MAGNETAR_DATA_FOLDER": str(tmp_path)})
    command = [sys.executable, "-m", "magnetar_cli", "standalone", "--ephemeral", "--data", str(tmp_path / "d")]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 78
    assert "leave out ephemeral" in refused.stderr
    assert not (tmp_path / "d").exists()
    assert load(StandaloneSettings, flags=["ephemeral=true"]).ephemeral


def test_a_lag_bound_below_the_publish_buffer_is_refused() -> None:
    """CHK-66: at start, by both names."""
    with pytest.raises(
        InvalidConfiguration, match=r"max_bookie_lag_bytes is 5, .*max_message_publish_buffer_size_in_mb"
    ):
        load(StandaloneSettings, flags=["max_bookie_lag_bytes=5"])


@pytest.mark.parametrize(
    ("flag", "names"),
    [
        ("managed_ledger_max_pending_bytes=1048576", "max_pending_publish_bytes_per_topic, which is 33554432"),
        ("max_pending_publish_bytes_per_topic=268435456", "managed_ledger_max_pending_bytes is 67108864"),
        ("managed_ledger_max_leases_per_topic=5", "max_leases_per_namespace is 1000"),
        ("topic_load_timeout_seconds=5", "slow_topic_load_seconds is 10"),
    ],
)
def test_bounds_of_topics_that_contradict_each_other_are_refused(flag: str, names: str) -> None:
    """CHK-66: at start, by both names."""
    with pytest.raises(InvalidConfiguration, match=names):
        load(StandaloneSettings, flags=[flag])


def test_locked_data_folder_error_names_the_owning_process(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path / "a" / "b")
    folder.write_urls({"grpc": "magnetar://somewhere:1"})
    with pytest.raises(FolderTaken, match=f"process {os.getpid()}, which serves magnetar://somewhere:1"):
        DataFolder.open(tmp_path / "a" / "b")
    folder.close()
    folder.close()
    again = DataFolder.open(tmp_path / "a" / "b")
    # The URLs of the earlier process are deleted.
    assert json.loads((again.path / "standalone.lock").read_bytes()) == {"pid": os.getpid()}
    again.close()
    assert (tmp_path / "a" / "b").exists()


def test_forked_child_does_not_hold_the_folder_lock(tmp_path: Path) -> None:
    folder = DataFolder.open(tmp_path / "data")
    running, runs = os.pipe()
    ending, ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(runs, b"x")
        os.read(ending, 1)
        os._exit(0)
    try:
        assert os.read(running, 1) == b"x"
        folder.close()
        DataFolder.open(tmp_path / "data").close()
    finally:
        os.write(ends, b"x")
        os.waitpid(child, 0)
        for end in (running, runs, ending, ends):
            os.close(end)


def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderTaken, match="--data"):
        DataFolder.open(tmp_path / "file")


def test_only_abandoned_ephemeral_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    running, abandoned = DataFolder.create_ephemeral(), DataFolder.create_ephemeral()
    (abandoned.path / "x").mkdir()
    abandoned.release_lock()
    mine = tmp_path / "mine"
    DataFolder.open(mine).close()
    link = tmp_path / "magnetar-ephemeral-link"
    link.symlink_to(mine)
    being_made = tmp_path / "magnetar-ephemeral-new"
    being_made.mkdir()
    remove_abandoned()
    assert running.path.exists()
    assert not abandoned.path.exists()
    assert (mine / "standalone.lock").exists()
    assert being_made.exists()
    running.close()
    assert not running.path.exists()
