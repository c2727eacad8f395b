"""What checks of the tree have in common: CHECK.py ROOT prints what it finds, CHECK.py --self-test tries it; 1 where there is anything."""

import pathlib
import sys
import tempfile


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def self_test(check, good, bad):
    """What is wrong with check(root), which must find nothing in `good` and one line with each file of `bad` beside it."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in good.items():
            write(root, path, text)
        problems = [f"refused, but good: {line}" for line in check(root)]
        for path, text in bad.items():
            write(root, path, text)
            if len(check(root)) != 1:
                problems.append(f"accepted, but bad: {path}: {text.strip()}")
            (root / path).unlink()
    return problems


def main(usage, check, trial):
    if len(sys.argv) != 2:
        sys.exit(usage)
    found = trial() if sys.argv[1] == "--self-test" else check(pathlib.Path(sys.argv[1]))
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)
