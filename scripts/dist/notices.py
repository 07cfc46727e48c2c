#!/usr/bin/env python3
"""Prints the licences of the crates that are part of the module, as their authors ask of whoever passes it on.

A text that several crates share is printed once.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

LICENCE_FILE = re.compile(r"(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)


def cargo(*args: str) -> str:
    """Answers what cargo prints."""
    return subprocess.run(["cargo", *args], check=True, capture_output=True, text=True).stdout


def linked() -> set[tuple[str, str]]:
    """The names and versions of the crates whose code is in the module; macros only run at the build."""
    tree = cargo("tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}")
    lines = {line.removesuffix(" (*)") for line in tree.splitlines() if line}
    return {(name, version.removeprefix("v")) for name, version, *_ in map(str.split, lines)}


def licence_files(package: dict) -> list[Path]:
    """Finds the texts of a crate: where one may choose between licences and MIT is among them, that one."""
    folder = Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and LICENCE_FILE.match(path.name))
    mit = [path for path in files if "mit" in path.name.lower()]
    is_choice = " OR " in package["license"] or "/" in package["license"]
    return mit if is_choice and mit else files


def main() -> None:
    """Prints each text below the names of its crates."""
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1"))
    wanted = linked()
    texts: dict[str, list[str]] = {}
    bare: list[str] = []
    for package in sorted(metadata["packages"], key=lambda p: (p["name"], p["version"])):
        if package["source"] is None or (package["name"], package["version"]) not in wanted:
            continue
        title = f"{package['name']} {package['version']} ({package['license']})"
        files = licence_files(package)
        for path in files:
            text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip()
            texts.setdefault(text, []).append(title)
        if not files:
            authors = ", ".join(package["authors"]) or "its authors"
            bare.append(f"{title}, by {authors}: {package['repository']}")

    out = sys.stdout.write
    out("The module is licensed under MIT or Apache-2.0 and holds code of the crates below, and of Rust's standard library\n")
    out("(MIT or Apache-2.0, The Rust Project Developers).\n")
    for text, titles in texts.items():
        rule = "=" * 78
        out(f"\n{rule}\n" + "\n".join(dict.fromkeys(titles)) + f"\n{rule}\n\n{text}\n")
    if bare:
        out("\nOf these crates only the name of the licence is given with their source:\n\n" + "\n".join(bare) + "\n")


if __name__ == "__main__":
    main()
