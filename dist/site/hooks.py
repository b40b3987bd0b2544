"""What the site needs beyond the pages of docs/, which are written for a forge: a front page from the README, a navigation that lists
whole directories, and names in place of links that leave docs/."""
import logging
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

log = logging.getLogger("mkdocs.plugins.holdover")
ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config):
    config.nav = [expand(item, config) for item in config.nav]
    return config


def expand(item, config):
    """`mechanisms/` stands for every page of that directory, its README first."""
    if isinstance(item, list):
        return [expand(each, config) for each in item]
    if not isinstance(item, dict):
        return item
    title, target = next(iter(item.items()))
    if isinstance(target, str) and target.endswith("/"):
        pages = sorted((pathlib.Path(config.docs_dir) / target).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
        return {title: [target + page.name for page in pages]}
    return {title: expand(target, config) if isinstance(target, list) else target}


def on_files(files, config):
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    # The README lies one directory above the other pages.
    here = "." if page.file.src_uri == "index.md" else posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    origin = posixpath.dirname(page.file.src_uri)

    def link(match):
        text, target, anchor = match.groups()
        if "://" in target or target.startswith(("mailto:", "/")):
            return match[0]
        path = posixpath.normpath(posixpath.join(here, target))
        on_disk = ROOT / path
        if on_disk.is_dir() and (on_disk / "README.md").exists():
            path, on_disk = posixpath.join(path, "README.md"), on_disk / "README.md"
        if path == "README.md":
            path = "docs/index.md"
        if path.startswith("docs/") and not on_disk.is_dir():
            return f"[{text}]({posixpath.relpath(path[len('docs/'):], origin or '.')}{anchor or ''})"
        if not on_disk.exists():
            log.warning("%s links to %s, which is not there", page.file.src_uri, target)
        # A file that is not on the site is named only: it lies in the sources.
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    return LINK.sub(link, markdown)
