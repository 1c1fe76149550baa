#!/usr/bin/env python3
"""Checks licences, sources and bans of the dependencies against deny.toml, from `cargo metadata`.

Checks the workspace and the packages beside it. Needs no network after `cargo fetch`,
and no other program. `cargo deny` checks the same and the advisories; run it before a release:
`./gate deny`. Exit code 1 if anything is not allowed.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def is_allowed(expression, allowed):
    """Evaluates an SPDX expression. The old form `MIT/Apache-2.0` means OR."""
    words = re.findall(r"[()]|[^()\s]+", expression.replace("/", " OR "))

    def alternatives():
        result = conjunction()
        while words and words[0] == "OR":
            words.pop(0)
            result = conjunction() or result
        return result

    def conjunction():
        result = licence()
        while words and words[0] == "AND":
            words.pop(0)
            result = licence() and result
        return result

    def licence():
        word = words.pop(0)
        if word == "(":
            result = alternatives()
            words.pop(0)
            return result
        if words and words[0] == "WITH":
            word += " WITH " + words[1]
            del words[:2]
        return word in allowed

    return alternatives() and not words


def distributed(metadata):
    """Returns the ids of all packages that a workspace member is built from, without dev-dependencies."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found, waiting = set(), list(metadata["workspace_members"])
    while waiting:
        package = waiting.pop()
        if package in found:
            continue
        found.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return found


def problems(metadata, rules):
    members = set(metadata["workspace_members"])
    reach = distributed(metadata)
    allowed = set(rules["licenses"]["allow"])
    banned = {ban["crate"]: ban["reason"] for ban in rules["bans"]["deny"]}
    for package in metadata["packages"]:
        name = f"{package['name']} {package['version']}"
        is_member = package["id"] in members
        is_ours = not package["source"] and Path(package["manifest_path"]).is_relative_to(Path.cwd())
        if not is_ours and package["source"] != CRATES_IO:
            yield f"{name}: comes from {package['source'] or 'a path'}, not from crates.io"
        if package["id"] not in reach:
            continue
        if package["name"] in banned:
            yield f"{name}: banned: {banned[package['name']]}"
        expression = package["license"]
        if not expression:
            yield f"{name}: says no licence"
        elif not is_allowed(expression, allowed):
            yield f"{name}: licence {expression} is not in deny.toml"
        if is_member:
            for dependency in package["dependencies"]:
                if dependency["req"] == "*" and not dependency.get("path"):
                    yield f"{name}: takes any version of {dependency['name']}"


def main():
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    found, count = set(), 0
    for manifest in ["Cargo.toml", "benches/Cargo.toml", "tests/soak/Cargo.toml"]:
        command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features"]
        command += ["--manifest-path", manifest]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        metadata = json.loads(done.stdout)
        found.update(problems(metadata, rules))
        count += len(metadata["packages"])
    for problem in sorted(found):
        print(f"dependencies: {problem}", file=sys.stderr)
    print(f"{count} packages of three lock files, {len(found)} problems")
    return 1 if found else 0


sys.exit(main())
