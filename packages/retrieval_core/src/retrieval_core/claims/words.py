"""Words of English that turn a sentence into its opposite, and words of which one excludes the others."""

from __future__ import annotations

from functools import cache
from hashlib import sha256

from retrieval_core.analysis import Analyzer

_NEGATORS = """
not no never none nobody nothing nowhere neither nor without cannot unless avoid avoids avoided avoiding hardly
"""
NEGATORS = frozenset(_NEGATORS.split())
"""What follows them in the same clause is denied; so it is behind what ends with ``n't``."""
AFTER_NOT = frozenset({"only", "just", "merely", "least", "most", "more", "less", "fewer", "later", "earlier"})
"""Behind ``not`` and ``no`` these deny nothing: not only, no more than."""

# Words of one kind; those behind the bar say the opposite of those before it.
_OPPOSITES = """
enable on activate active | disable deactivate inactive off
include | exclude except
cause | cure
allow permit may allowed permitted | forbid forbidden prohibit prohibited ban banned disallow
accept approve | reject refuse decline
require required mandatory obligatory | optional
rise risen increase grow grown raise climb high higher highest | fall fallen decrease decline drop reduce low lower
improve better | worsen worse deteriorate
above over exceed | below under beneath
more most | less least fewer fewest
maximum | minimum
large larger largest big bigger biggest | small smaller smallest
long longer longest | short shorter shortest
heavy heavier heaviest | light lighter lightest
fast faster fastest quick quicker | slow slower slowest
hot hotter warm warmer | cold colder cool cooler
early earlier earliest | late later latest
old older oldest | young younger youngest new newer newest
before | after
inside internal | outside external
begin began begun start launch | end stop cease finish
open opened | close closed shut
add adds | remove delete
accelerate | delay
win won victory success | lose lost defeat failure
support favour favor welcome | oppose object
always | never
all every | none
first | last
safe | dangerous
strong stronger strongest | weak weaker weakest
expensive dearer | cheap cheaper cheapest
public | private
true | false
yes | no
valid | expired
succeed | fail
lock locked | unlock unlocked
attach | detach
import | export
input | output
upload | download
encrypt encrypted | unencrypted
legal lawful | illegal unlawful
present | absent
full | empty
frequent common | rare rarer seldom
connect | disconnect
buy bought acquire acquired purchase | sell sold
same | different
positive | negative
ascend ascending | descend descending
synchronous | asynchronous
"""

_EXCLUSIVE = """
monday tuesday wednesday thursday friday saturday sunday
january february march april may june july august september october november december
spring summer autumn winter
north south east west
northern southern eastern western
left right
hourly daily weekly monthly quarterly yearly
red orange yellow green blue purple black white grey brown pink
first second third fourth fifth
morning noon afternoon evening night
gold silver bronze copper iron tin
mother father
son daughter
brother sister
king queen
male female
double triple quadruple
boys girls
men women
"""

_PREFIXES = ("un", "non", "in", "im", "ir", "dis")
_SAME = {
    "kept": "keep", "left": "leave", "sent": "send", "gave": "give", "given": "give", "took": "take", "taken": "take",
    "made": "make", "ran": "run", "went": "go", "came": "come", "wrote": "write", "written": "write", "held": "hold",
    "found": "find", "built": "build", "rebuilt": "rebuild", "paid": "pay", "got": "get", "began": "begin",
    "begun": "begin", "led": "lead", "lost": "lose", "won": "win", "said": "say", "stood": "stand", "froze": "freeze",
    "frozen": "freeze", "bought": "buy", "sold": "sell", "rose": "rise", "risen": "rise", "fell": "fall",
    "fallen": "fall", "grew": "grow", "grown": "grow", "chose": "choose", "chosen": "choose", "broke": "break",
    "broken": "break", "drove": "drive", "driven": "drive", "spent": "spend", "slept": "sleep", "ate": "eat",
    "weight": "weigh", "height": "high", "depth": "deep", "length": "long", "children": "child", "people": "person",
    "weighs": "weigh", "forbidden": "forbid", "undone": "undo", "beaten": "beat", "burnt": "burn", "shut": "close",
    "saw": "see", "seen": "see", "knew": "know", "known": "know", "brought": "bring", "taught": "teach",
    "thought": "think", "feet": "foot", "men": "man", "women": "woman", "hid": "hide", "hidden": "hide",
}  # fmt: skip


@cache
def analyzer() -> Analyzer:
    """Return the analysis that all comparisons share: English stems."""
    return Analyzer()


@cache
def _stem(word: str) -> str:
    terms = analyzer().terms(word)
    return terms[0] if terms else word


def stem(word: str) -> str:
    """Return a word without its ending, and of irregular forms the plain one's."""
    word = word.lower()
    word = _SAME.get(word, word)
    if not word.isalpha():  # identifiers, versions, paths
        return word
    return _stem(word) if word in _listed() else (analyzer().terms(word) or [word])[0]


@cache
def _listed() -> frozenset[str]:
    return frozenset((_OPPOSITES + _EXCLUSIVE).replace("|", " ").split()) | frozenset(_SAME.values())


@cache
def opposites() -> dict[str, tuple[str, int]]:
    """Return for each stem the name of its kind, and 1 or -1 for its side; the first line that has it counts."""
    found: dict[str, tuple[str, int]] = {}
    for line in _OPPOSITES.strip().splitlines():
        for side, words in zip((1, -1), line.split("|"), strict=True):
            for word in words.split():
                found.setdefault(stem(word), (line.split()[0] + "/" + line.partition("|")[2].split()[0], side))
    return found


@cache
def exclusive() -> dict[str, int]:
    """Return for each stem the number of its set of words that exclude one another."""
    return {stem(word): number for number, line in enumerate(_EXCLUSIVE.strip().splitlines()) for word in line.split()}


def without_prefix(word: str) -> str | None:
    """Return the stem of what a word denies by its prefix: safe for unsafe; ``None`` where it has none."""
    word = word.lower()
    for prefix in _PREFIXES:
        if word.startswith(prefix) and len(word) > len(prefix) + 3:
            return stem(word[len(prefix) :])
    return None


@cache
def rules_id() -> str:
    """Return a digest of the lists and of the analysis."""
    rules = (_OPPOSITES, _EXCLUSIVE, _PREFIXES, sorted(_SAME.items()), sorted(NEGATORS), analyzer().id)
    return sha256(repr(rules).encode()).hexdigest()[:12]
