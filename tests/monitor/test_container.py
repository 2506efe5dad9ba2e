"""The container's image, as far as anybody inside can know it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdoctor.monitor.machine import NO_CONTAINER, UNKNOWN_IMAGE, container_image


def test_outside_of_a_container_there_is_none(tmp_path: Path) -> None:
    assert container_image(tmp_path, {}) == NO_CONTAINER


def test_podman_says_which_image(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").write_text('engine="podman"\nimageid="0123456789abcdef"\n')
    assert container_image(tmp_path, {}) == "0123456789ab"


def test_gitlab_names_it(tmp_path: Path) -> None:
    assert container_image(tmp_path, {"CI_JOB_IMAGE": "python:3.12"}) == "python:3.12"


@pytest.mark.parametrize("variables", [{}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}])
def test_docker_and_kubernetes_do_not(tmp_path: Path, variables: dict[str, str]) -> None:
    if not variables:
        (tmp_path / ".dockerenv").touch()
    assert container_image(tmp_path, variables) == UNKNOWN_IMAGE
