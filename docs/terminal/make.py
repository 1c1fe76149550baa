#!/usr/bin/env python3
"""Make docs/terminal/snap.svg: a picture of a terminal, from a real run.

Usage: docs/terminal/make.py PATH-OF-SNAP

Runs the commands below in an empty folder, each on a terminal of its own so
that colours and shortened ids are what people see, and draws what they print.
Needs Python 3 only.
"""

import html
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile

COLUMNS, FONT, LINE, CHAR = 92, 14, 20, 8.4
COLOURS = {
    30: "#484f58", 31: "#ff7b72", 32: "#7ee787", 33: "#f2cc60", 34: "#79c0ff",
    35: "#d2a8ff", 36: "#76e3ea", 37: "#c9d1d9", 90: "#8b949e", 91: "#ffa198",
    92: "#aff5b4", 93: "#f8e3a1", 94: "#a5d6ff", 95: "#e2c5ff", 96: "#b3f0ff", 97: "#ffffff",
}

SHELL = """
mkdir -p src data; cp -r /usr/include/linux/*.h src/; cp -r /usr/include/linux/netfilter src/
head -c 30000000 /dev/urandom > data/model.bin; printf '# Notes\\n' > notes.md; sleep 3
"""

COMMANDS = [
    ("snap commit -m 'First draft'", None),
    ("echo 'one more line' >> notes.md; mv data/model.bin data/model-v1.bin", None),
    ("snap status", None),
    ("snap diff notes.md", None),
    ("snap commit -m 'Rename the model'", None),
    ("snap log --oneline", None),
    ("rm -r src && snap restore latest:src src", None),
    ("snap pack latest -o draft.snap && snap export latest -o draft.tar.zst", None),
]


def run(command, folder, path):
    """What a command prints on a terminal."""
    env = {"PATH": path, "HOME": folder, "TERM": "xterm-256color", "LANG": "C.UTF-8",
           "COLUMNS": str(COLUMNS), "SNAP_AUTHOR": "ada", "SNAP_HOST": "laptop", "TZ": "UTC"}
    parent, child = pty.openpty()
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, env=env, stdin=child,
                               stdout=child, stderr=child)
    os.close(child)
    output = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    process.wait()
    return output.decode(errors="replace")


def screen(text):
    """Lines as a terminal shows them once progress lines are gone."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-HJKhlsu]", "", text).replace("\r\n", "\n")
    return [line.rsplit("\r", 1)[-1] for line in text.split("\n")]


def spans(line):
    """Splits a line at its colour codes."""
    colour, bold, found = None, False, []
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if not code:
            if part:
                found.append((part, colour, bold))
            continue
        for number in (int(n or 0) for n in code[1].split(";")):
            if number == 0:
                colour, bold = None, False
            elif number == 1:
                bold = True
            elif number == 2:
                colour = "#8b949e"
            elif number in COLOURS:
                colour = COLOURS[number]
    return found


def tspan(text, colour, bold):
    weight = ' font-weight="bold"' if bold else ""
    # No viewer folds these.
    text = html.escape(text).replace(" ", "\u00a0")
    return f'<tspan fill="{colour or "#c9d1d9"}"{weight}>{text}</tspan>'


def draw(lines):
    height = (len(lines) + 3) * LINE
    width = int(COLUMNS * CHAR) + 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img" aria-label="snap in a terminal">',
           f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>']
    for at, dot in enumerate(["#ff5f56", "#ffbd2e", "#27c93f"]):
        out.append(f'<circle cx="{22 + 20 * at}" cy="20" r="6" fill="{dot}"/>')
    out.append(f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
               f'font-size="{FONT}" fill="#c9d1d9">')
    for at, line in enumerate(lines):
        parts = "".join(tspan(*part) for part in spans(line[:400]))
        out.append(f'<text x="20" y="{(at + 3) * LINE - 4}">{parts}</text>')
    out.append("</g></svg>")
    return "\n".join(out) + "\n"


def main():
    snap = os.path.abspath(sys.argv[1])
    top = tempfile.mkdtemp()
    folder, tools = os.path.join(top, "project"), os.path.join(top, "bin")
    os.makedirs(folder)
    os.makedirs(tools)
    os.symlink(snap, os.path.join(tools, "snap"))
    path = tools + ":" + os.environ["PATH"]
    subprocess.run(["sh", "-c", SHELL], cwd=folder, check=True)
    lines = []
    for command, shown in COMMANDS:
        lines.append(f"\x1b[32m$\x1b[0m \x1b[1m{shown or command}\x1b[0m")
        output = screen(run(command, folder, path))
        lines += [line for line in output if line.strip()]
        lines.append("")
    picture = draw(lines[:-1]).replace(top, "")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "snap.svg"), "w") as file:
        file.write(picture)
    shutil.rmtree(top)


main()
