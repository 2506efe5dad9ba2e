"""`perfdoctor init`: a configuration and a workflow to start from. Nothing that exists is touched."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..config.files import FILE, PYPROJECT
from ..errors import PerfdoctorError

TEMPLATES = Path(__file__).parent / "templates"
_GITHUB = Path(".github/workflows/perfdoctor.yml")
_GITLAB = Path(".gitlab/perfdoctor.yml")


def run(root: Path, script: str, platform: str | None) -> str:
    """Write what is missing under `root`; what was done, for the user. Raises PerfdoctorError."""
    if not (root / script).is_file():
        raise PerfdoctorError(
            f"there is no script {script}",
            slug="script-missing",
            advice="name the script that the workflow is to run, as seen from the top of the repository",
        )
    said = [_settings(root)]
    on_gitlab = platform == "gitlab" or (platform is None and (root / ".gitlab-ci.yml").exists())
    target, template = (_GITLAB, "gitlab.yml") if on_gitlab else (_GITHUB, "github.yml")
    text = (TEMPLATES / template).read_text().replace("SCRIPT", shlex.quote(script))
    said.append(_write(root / target, text, str(target)))
    if on_gitlab:
        said.append(f'add to .gitlab-ci.yml:  include: [{{ local: "{_GITLAB}" }}]')
    said.append("set where perfdoctor is installed from in the workflow, then try it here: perfdoctor gate --self-test")
    return "\n".join(said)


def _settings(root: Path) -> str:
    """In pyproject.toml where there is one, else in a file of our own."""
    text = (TEMPLATES / "settings.toml").read_text()
    project = root / PYPROJECT
    if not project.exists() or (root / FILE).exists():
        return _write(root / FILE, text, FILE)
    held = project.read_text()
    if "[tool.perfdoctor" in held:
        return f"{PYPROJECT} has a section already"
    section = "[tool.perfdoctor]\n" + text.replace("\n[", "\n[tool.perfdoctor.")
    project.write_text(held.rstrip("\n") + "\n\n" + section)
    return f"added [tool.perfdoctor] to {PYPROJECT}"


def _write(path: Path, text: str, name: str) -> str:
    if path.exists():
        return f"{name} exists already"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return f"wrote {name}"
