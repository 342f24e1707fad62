"""Markdown of answers: what is read of it, that all else stays text, and that a growing answer is not made again."""

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.doors.dashboard.site import Site, Visit

pytestmark = [pytest.mark.process, pytest.mark.browser]

OUTLINE = """(pieces) => import("/assets/markdown.js").then(({ MarkdownText }) => {
    const outline = (node) => {
        if (node.nodeType === Node.TEXT_NODE) return node.data;
        if (node.className === "code-head") return null;
        const of = { A: node.getAttribute("href"), OL: node.getAttribute("start") }[node.tagName] ?? null;
        const name = node.tagName.toLowerCase() + (of === null ? "" : ` ${of}`);
        return [name, ...[...node.childNodes].map(outline).filter((each) => each !== null)];
    };
    const root = document.createElement("div");
    const text = new MarkdownText(root);
    let all = "";
    for (const piece of pieces) text.set((all += piece));
    return outline(root).slice(1);
})"""
"""The elements of a text that comes in these pieces."""


def outline(page: Page, *pieces: str) -> list[Any]:
    found: list[Any] = page.evaluate(OUTLINE, list(pieces))
    return found


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("# One\n### Three ###", [["h3", "One"], ["h4", "Three"]]),
        ("a\nb\n\nc", [["p", "a\nb"], ["p", "c"]]),
        ("**b *e* c** _u_ ~~s~~", [["p", ["strong", "b ", ["em", "e"], " c"], " ", ["em", "u"], " ", ["s", "s"]]]),
        ("snake_case_name 2 * 3 * 4 \\*x\\*", [["p", "snake_case_name 2 * 3 * 4 ", "*", "x", "*"]]),
        ("`a*b*` ``c`d``", [["p", ["code", "a*b*"], " ", ["code", "c`d"]]]),
        ("- a\n  - b\n- c", [["ul", ["li", ["p", "a"], ["ul", ["li", "b"]]], ["li", "c"]]]),
        ("3. a\n4. b\n\ntext", [["ol 3", ["li", "a"], ["li", "b"]], ["p", "text"]]),
        ("> a\n> b", [["blockquote", ["p", "a\nb"]]]),
        ("a\n\n---\nb", [["p", "a"], ["hr"], ["p", "b"]]),
        ("```py\nif x:\n\n    <b>\n```\nend", [["div", ["pre", ["code", "if x:\n\n    <b>"]]], ["p", "end"]]),
        ("| a | b |\n|---|:-:|\n| 1 |", [["div", ["table", ["thead", ["tr", ["th", "a"], ["th", "b"]]]]]]),
        ("[x](https://e.example/a_(b))", [["p", ["a https://e.example/a_(b)", "x"]]]),
        ("see https://e.example/x, ok", [["p", "see ", ["a https://e.example/x", "https://e.example/x"], ",", " ok"]]),
        ("[x](javascript:alert(1)) [y](data:a)", [["p", "[x](javascript:alert(1))", " ", "[y](data:a)"]]),
        ("<i>&lt;</i> ![x](y.png)", [["p", "<i>&lt;</i> !", "[x](y.png)"]]),
    ],
)
def test_what_is_read_of_markdown_and_what_stays_text(page: Page, text: str, elements: list[Any]) -> None:
    if "table" in json.dumps(elements):
        elements[0][1].append(["tbody", ["tr", ["td", "1"], ["td"]]])
    assert outline(page, text) == elements
    assert outline(page, *text) == elements, "in pieces of one character"


def test_no_text_takes_long_to_read(page: Page) -> None:
    nasty = ["`" * 20_000, "` `` " * 4_000, "**a " * 5_000, "[" * 20_000, "# " + " " * 20_000 + "x", "> " * 10_000]
    nasty += [
        "- " * 10_000,
        "|" * 20_000,
        "_a" * 10_000,
        "\n".join(" " * n + "- x" for n in range(190)),
        "1. x\n\n" * 3_000,
    ]
    nasty += ["h" + "ttps://" + "." * 20_000, "```" + " " * 20_000 + "`", "*a **b " * 3_000]
    seconds = page.evaluate(
        """async (texts) => {
            const { markdown } = await import("/assets/markdown.js");
            return texts.map((text) => {
                const begun = performance.now();
                markdown(text);
                return performance.now() - begun;
            });
        }""",
        nasty,
    )
    assert max(seconds) < 1_000, list(zip([text[:10] for text in nasty], seconds, strict=True))


def test_what_has_come_of_an_answer_is_not_made_again_for_its_next_piece(page: Page) -> None:
    made = page.evaluate(
        """async () => {
            const { MarkdownText } = await import("/assets/markdown.js");
            const root = document.createElement("div");
            document.body.append(root);
            const text = new MarkdownText(root);
            let all = "";
            let made = 0;
            const count = (changes) => changes.forEach(({ addedNodes }) => (made += addedNodes.length));
            const watcher = new MutationObserver(count);
            watcher.observe(root, { childList: true, subtree: true });
            const pieces = ["Some *words* ", "and more.\\n\\n"];
            for (let block = 0; block < 300; block++) for (const piece of pieces) text.set((all += piece));
            text.set((all += "```\\n"));
            for (let line = 0; line < 300; line++) text.set((all += `line ${line}\\n`));
            count(watcher.takeRecords());
            root.remove();
            return [made, root.querySelectorAll("p").length, root.querySelector("code").textContent.length];
        }"""
    )
    assert made[1:] == [300, len("".join(f"line {n}\n" for n in range(300)))]
    assert made[0] < 3_000


def test_an_answer_is_shown_as_its_markdown_and_its_code_is_copied(site: Site, visit: Visit, page: Page) -> None:
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    site.say("marked", "ECHO:# Title\n\nSee **this**:\n\n```sh\nmake test\n```\n")
    visit.open_session("marked")
    answer = page.locator("#history .said.assistant .text")
    expect(answer.locator("h3")).to_have_text("Title")
    expect(answer.locator("strong")).to_have_text("this")
    expect(page.locator("#history .said.user .text")).to_contain_text("**this**")
    answer.get_by_role("button", name="Copy the code (sh)").click()
    expect(page.locator(".toast").last).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "make test"
