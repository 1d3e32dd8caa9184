"""Rust code as the laws read it."""

import re


def production(code: str) -> str:
    """The code without what is only there for tests, wherever it stands. Lines keep their numbers."""
    kept, at = [], 0
    for found in re.finditer(r"#\[cfg\(test\)\]", code):
        if found.start() < at:
            continue
        kept.append(code[at:found.start()])
        at = end_of_item(code, found.end())
        kept.append("\n" * code.count("\n", found.start(), at))
    return "".join(kept) + code[at:]


def end_of_item(code: str, at: int) -> int:
    """Behind the item that begins here: its braces, or its semicolon. What rustfmt has formatted has no brace alone in a text."""
    depth = 0
    for found in re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|[{};]', re.DOTALL).finditer(code, at):
        match found[0]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
        if depth == 0 and found[0] in ("}", ";"):
            return found.end()
    return len(code)
