#!/usr/bin/env python3
"""Checks the links of the documentation.

usage: links.py ROOT         every relative link of ROOT's *.md files (those that git tracks, where ROOT is a repository)
                             leads to a file or folder, and its anchor to a heading (or <a name="...">) of that file;
                             every page of docs/, data/, bench/ and jobs/ that the text of a source or script names exists
       links.py --self-test  the checks against links that lead nowhere
Prints each offending link; the exit code is 1 where there is one.
"""

import re
import subprocess
import urllib.parse

import checker

SOURCES = {".hpp", ".cpp", ".cu", ".def", ".py", ".sh", ".toml", ".txt", ".cmake"}


def prose(text):
    """(number, line) of what is not code: neither between fences, nor indented after an empty line, nor in backticks."""
    fence, indented, before = False, False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*(```|~~~)", line):
            fence = not fence
            continue
        indented = bool(re.match(r"    \S", line)) and (indented or not before.strip())
        if line.strip():
            before = line
        else:
            before = ""
        if not fence and not indented:
            yield number, line


def plain(heading):
    """A heading's words, without links and marks."""
    return re.sub(r"[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip()


def anchors(text):
    """GitHub's names of the headings: lower case, only letters, digits, - and _, a hyphen for a space, -1 after a second one."""
    found, seen = set(), {}
    for _, line in prose(text):
        found.update(re.findall(r'<a (?:name|id)="([^"]+)"', line))
        if heading := re.match(r"#{1,6}\s+(.*?)\s*#*$", line):
            name = re.sub(r"[^\w\- ]", "", plain(heading[1]).lower()).replace(" ", "-")
            count = seen[name] = seen.get(name, -1) + 1
            found.add(f"{name}-{count}" if count else name)
    return found


def files(root):
    """Paths below the root: what git tracks; all of them where it is no repository."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    if listed.returncode == 0:
        return sorted(path for path in (root / name for name in listed.stdout.split("\0") if name) if path.is_file())
    hidden = lambda path: any(part.startswith((".", "build")) for part in path.relative_to(root).parts)
    return sorted(path for path in root.rglob("*") if path.is_file() and not hidden(path))


def check(root):
    """Offending links, as text."""
    found, all_files = [], files(root)
    pages = {path.resolve(): path.read_text() for path in all_files if path.suffix == ".md"}
    names = {page: anchors(text) for page, text in pages.items()}
    if not pages:
        found.append(f"{root}: no pages here")
    for page, text in pages.items():
        for number, line in prose(text):
            for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = urllib.parse.unquote(link).partition("#")
                target = (page.parent / path).resolve() if path else page
                where = f"{page.relative_to(root.resolve())}:{number}: {link}"
                if not target.exists():
                    found.append(f"{where}: no such file")
                elif anchor and anchor not in names.get(target, ()):
                    found.append(f"{where}: no such heading")
    for path in all_files:
        if path.suffix in SOURCES and path.name != "links.py":
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                for name in re.findall(r"\b(?:docs|data|bench|jobs)/[\w/.-]+\.md\b", line):
                    if not (root / name).exists():
                        found.append(f"{path.relative_to(root)}:{number}: {name}: no such file")
    return found


GOOD = {
    "README.md": "# A page: `of code`\n\n[a](docs/b.md#two-words) [b](#a-page-of-code) [c](docs/) [d](https://nowhere#x)\n\n    [e](nowhere.md)\n",
    "docs/b.md": '# Two words\n\n## Two words\n\n[up](../README.md) [again](#two-words-1) <a name="old"></a> [old](b.md#old) `[f](nowhere.md)`\n',
    "src/main.cpp": "// docs/b.md\n",
}
BAD = {
    "docs/c.md": "[no file](nowhere.md)\n",
    "docs/d.md": "[no heading](b.md#three-words)\n",
    "docs/e.md": "# Here\n\n[no heading of its own](#there)\n",
    "docs/f.md": "[from another folder](docs/b.md)\n",
    "docs/g.md": "```\n# In code\n```\n\n[no heading, but code](#in-code)\n",
    "src/a.cpp": "// docs/nowhere.md\n",
}


checker.main(__doc__, check, lambda: checker.self_test(check, GOOD, BAD))
