"""Judge the sentences of Markdown, comments, docstrings and messages.

    python3 .ci/lint_prose.py [FILE...]     in the root of the repository; make lint does it

One line is printed for each fault, and the exit code is 1 if there are any. Without FILE, all files
of the repository are judged but tests. CONTRIBUTING.md has the rules. Code blocks, inline code and
the addresses of links are no prose.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST = 35  # words in one sentence of a page or a message
MEAN = 25  # words in the sentences of one page

C_LIKE = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inl"}
PYTHON = {".py", ".pyi"}
# Tests have wrong words on purpose, and this file lists some.
UNREAD = ("tests/", ".ci/")
CODE = "CODE"  # Inline code counts as one word.
KEPT = "Sentences are short and plain."

BRITISH = re.compile(
    r"neighbour|behaviour|favour|honour|colour|labour|harbour|centre\b|fibre|metre\b|\bgrey\b"
    r"|(?:cancel|label|model|travel|marshal|signal)l(?:ed|ing)\b|catalogue|analyse"
    r"|(?:initial|normal|optim|synchron|serial|recogn|organ|summar|general|minim|maxim|util"
    r"|parallel|random|final|real|priorit|character)is(?:e|ed|es|er|ing|ation)\b"
    r"|\bwhilst\b|\bamongst\b|\bfulfil\b|licence\b|defence\b",
    re.IGNORECASE,
)
# In "whoever waits drives" a reader has to find out who that is; in "a thread that waits" not.
HEADLESS = re.compile(r"(?:What|Whatever|Who|Whom)\b|.*\b[Ww]hoever\b|.*; (?:what|who)\b")
FRONTED = re.compile(r"(?:Of (?!course)|Nor )")
# "From it follows that" and "Beside the lock lies a flag" have their subjects after the verb.
INVERTED = re.compile(
    r"(?:To|From|With|By|In|On|At|Under|Beside|Between|Among|Behind|Before|After|Into)"
    r" (?:(?:the|a|an|its|their|each|every|this) )?(?!there )[\w'-]+"
    r" (?:is|are|was|were|belongs?|follows?|goes?|comes?|lies?|stands?|hangs?|depends?)\b"
)
DOUBLED = re.compile(
    r"\bnot un(?:like|usual|common|known|able|safe|equal)\b|\bnot without\b|\bcannot but\b"
    r"|\b(?:no \w+|nobody|nothing|none) (?:that|which|who) (?:is|are|has|have|does|do) not\b",
    re.IGNORECASE,
)

ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
FENCE = re.compile(r"\s*(?:[-*+]\s+|\d+[.)]\s+)?(```+|~~~+)")
# A sentence ends with a full stop before a capital, but not after an abbreviation.
END = re.compile(
    r"""(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\bal\.)(?<=[.!?])["')\]*_]*\s+"""
    r"""(?=["'(\[*_]*[A-Z\d]|\([a-z]\))"""
)
C_STRING = re.compile(r'(?:"(?:[^"\\\n]|\\.)*"\s*)+')
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

# A Fault is a line, and what is wrong there.
Fault = tuple[int, str]


@dataclass(frozen=True)
class Sentence:
    line: int
    text: str

    @property
    def words(self) -> int:
        return sum(any(map(str.isalnum, word)) for word in self.text.split())

    def __str__(self) -> str:
        return self.text if len(self.text) < 60 else f"{self.text[:57]}..."


def sentences(line: int, text: str) -> Iterator[Sentence]:
    """Yield the sentences of a block of text that begins on that line."""
    start = 0
    for stop in [*(found.end() for found in END.finditer(text)), len(text)]:
        said = text[start:stop]
        if any(map(str.isalnum, said)):
            above = text.count("\n", 0, start) + len(said) - len(said.lstrip("\n"))
            yield Sentence(line + above, " ".join(said.split()).lstrip("\"'(*_"))
        start = stop


def paragraphs(line: int, text: str) -> Iterator[tuple[int, str]]:
    for part in re.finditer(r"(?:.*\S.*\n?)+", text):
        yield line + text.count("\n", 0, part.start()), part[0]


def without_code(text: str) -> str:
    """Return the text with a word for each piece of inline code, and links without addresses."""

    def word(found: re.Match[str]) -> str:
        return CODE + "\n" * found[0].count("\n")

    text = re.sub(r"``.+?``|`[^`]+`", word, text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^()\s]*\)", " ", text)
    text = re.sub(r"\[[\w/-]*[/.][\w./-]*\](?=\()", f"[{CODE}]", text)  # a file, by its name
    text = re.sub(r"\[([^\]]*)\]\([^()\s]*(?:\s\"[^\"]*\")?\)", r"\1", text)
    return re.sub(r"<?https?://[^\s>)]+>?", CODE, text)


def uncoded(text: str) -> Iterator[str]:
    """Yield the lines of a page, and empty ones for blocks of code, comments and HTML."""
    fence, is_comment = "", False
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if mark and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else mark[1]
            yield ""
        elif not fence and (is_comment or line.lstrip().startswith("<!--")):
            is_comment = "-->" not in line
            yield ""
        else:
            is_kept = not fence and not line.startswith(("<", "---", "===", ":::"))
            yield line if is_kept else ""


def blocks(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield a page's paragraphs, items, headings, and cells of tables, and whether each is prose.

    Headings and cells are no prose: they may be phrases.
    """
    held: list[str] = []

    def end(number: int) -> Iterator[tuple[int, str, bool]]:
        if held:
            yield number - len(held), "\n".join(held), True
        held.clear()

    for number, line in enumerate([*uncoded(text), ""], 1):
        is_title, is_row = line.startswith("#"), line.lstrip().startswith("|")
        if not line.strip() or is_title or is_row or ITEM.match(line):
            yield from end(number)
        if is_title:
            yield number, line.lstrip("# "), False
        elif is_row:
            for cell in without_code(line).strip().strip("|").split("|"):
                yield number, cell.strip(" :-"), False
        elif line.strip():
            held.append(ITEM.sub("", line).lstrip("> "))


def is_nested(text: str) -> bool:
    """Return whether there are brackets inside brackets; those of a call, f(x), do not count."""
    opened: list[bool] = []
    for found in re.finditer(r"(\w?)\(|\)", text):
        if found[0] != ")":
            opened.append(not found[1])
        elif opened:
            opened.pop()
        if sum(opened) > 1:
            return True
    return False


def faults_of(sentence: Sentence, *, is_phrase: bool = False) -> Iterator[Fault]:
    """Yield the faults of a sentence but its length."""
    said = sentence.text
    if british := BRITISH.search(said):
        yield sentence.line, f'"{british[0]}" is British'
    if re.search(r"\bshall\b", said):
        yield sentence.line, 'write "must", "will" or "should", not "shall"'
    if doubled := DOUBLED.search(said):
        yield sentence.line, f'"{doubled[0]}" denies twice: say what is so'
    if is_phrase:
        return
    if HEADLESS.match(said) and "?" not in said:
        yield sentence.line, f'"{sentence}" has a clause for a subject: name who or what it is'
    if FRONTED.match(said) or INVERTED.match(said):
        yield sentence.line, f'"{sentence}" begins with its end: put the subject first'


def length_of(sentence: Sentence) -> Iterator[Fault]:
    if sentence.words > LONGEST:
        yield sentence.line, f'"{sentence}" has {sentence.words} words: make it two sentences'


def of_page(text: str) -> Iterator[Fault]:
    lengths: list[int] = []
    for line, marked, is_prose in blocks(text):
        block = without_code(marked)
        if is_nested(block):
            yield line, "there are brackets inside brackets"
        for sentence in sentences(line, block):
            lengths += [sentence.words] if is_prose else []
            yield from length_of(sentence)
            yield from faults_of(sentence, is_phrase=not is_prose)
    if len(lengths) > 4 and (mean := sum(lengths) / len(lengths)) > MEAN:
        yield 1, f"sentences have {mean:.1f} words on average, and may have {MEAN}"


def of_comments(text: str, mark: str) -> Iterator[Fault]:
    """Yield the faults of comments that have lines of their own."""
    said = re.sub(rf"^[ \t]*(?:{mark}+[!/]* ?(.*)|.*)$", r"\1", text, flags=re.MULTILINE)
    for line, part in paragraphs(1, said):
        for sentence in sentences(line, without_code(part)):
            yield from faults_of(sentence)


def strings(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Yield the strings of a module, and whether each is a docstring."""
    docs, parts = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr):
            docs.add(node.body[0].value)
        elif isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            said = [str(p.value) if isinstance(p, ast.Constant) else CODE for p in node.values]
            yield node.lineno, "".join(said), False
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.lineno, node.value, node in docs


def of_python(text: str) -> Iterator[Fault]:
    yield from of_comments(text, "#")
    try:
        tree = ast.parse(text)
    except SyntaxError:  # ruff reports the place.
        return
    for first, said, is_docstring in strings(tree):
        prose = re.sub(r"^\s*(?:>>>|\.\.\.) .*$", "", said, flags=re.MULTILINE)
        for line, part in paragraphs(first, prose):
            for sentence in sentences(line, without_code(part)):
                yield from () if is_docstring else length_of(sentence)
                yield from faults_of(sentence, is_phrase=" " not in sentence.text)


def of_c(text: str) -> Iterator[Fault]:
    yield from of_comments(text, "//")
    for found in C_STRING.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        said = re.sub(r'"\s*"', "", found[0]).strip().strip('"')
        for sentence in sentences(line, without_code(said)):
            yield from length_of(sentence)
            yield from faults_of(sentence, is_phrase=" " not in sentence.text)


def faults_in(path: Path) -> list[Fault]:
    text = path.read_text(errors="replace")
    judge = of_page if path.suffix == ".md" else of_python if path.suffix in PYTHON else of_c
    return sorted(judge(text))


def tracked() -> Iterator[Path]:
    """Yield the files that git has or would add, and whose language is judged here."""
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, check=True, capture_output=True, encoding="utf-8").stdout
    for name in filter(None, listed.split("\0")):
        path = Path(name)
        is_known = path.suffix in C_LIKE | PYTHON | {".md"}
        if is_known and not name.startswith(UNREAD) and path.is_file():
            yield path


def main(*files: str) -> int:
    try:
        paths = [*map(Path, files)] or [*tracked()]
    except (OSError, subprocess.CalledProcessError):
        print("no repository here: no sentence is judged")
        return 0
    faults = [f"{path}:{line}: {fault}" for path in paths for line, fault in faults_in(path)]
    print("\n".join([*faults, "CONTRIBUTING.md has the rules."]) if faults else KEPT)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
