"""Reads Rust code for the tests in this directory."""

import re


def production(code: str) -> str:
    """Returns the code without the items marked `#[cfg(test)]`. Lines keep their numbers."""
    kept, at = [], 0
    for found in re.finditer(r"#\[cfg\(test\)\]", code):
        if found.start() < at:
            continue
        kept.append(code[at:found.start()])
        at = end_of_item(code, found.end())
        kept.append("\n" * code.count("\n", found.start(), at))
    return "".join(kept) + code[at:]


def end_of_item(code: str, at: int) -> int:
    """Returns the position after the item that begins here: after its closing brace or its semicolon.

    Code formatted by rustfmt has no unbalanced brace in a string.
    """
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
