"""What :mod:`retrieval_core.cache.lookalikes` knows of English: words and phrases that say nothing, and traps."""

from __future__ import annotations


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _phrases(lines: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(line.split()) for line in lines.split("|"))


SIGNS_OF_ENGLISH = _set(
    "the what how why when where who which does did is are were should would with my your have this that there from can"
)
"""One of these makes a question English; among them is no frequent word of another language with other uses here."""

QUESTION_STARTS = _set(
    "what which who whom whose when where why how is are was were do does did can could will would should may must has "
    "have am if whether"
)
"""What a question proper begins with, once greetings are taken off."""

PREPOSITIONS = _set(
    "in on at for from after before during with without to as by under over between within since until against "
    "through via per of into onto about near above below inside outside"
)

GREETINGS = _phrases(
    "please|hi|hello|hey|ok|okay|so|hi there|hello there|excuse me|quick question|just wondering|any idea|tell me|"
    "please tell me|please explain|explain|can you tell me|could you tell me|would you tell me|can you please tell me|"
    "could you please tell me|can you explain|could you explain|can you please explain|could you please explain|"
    "can you show me|could you show me|could you please show me|show me|please show me|can someone tell me|"
    "can anyone tell me|can someone explain|can anyone explain|does anyone know|do you know|i want to know|"
    "i would like to know|i need to know|i wonder|i was wondering|i am wondering|let me know|please let me know"
)
"""What may stand before a question and adds nothing to it. Taken off only where a question follows."""
LONGEST_GREETING = max(map(len, GREETINGS))

THANKS = _phrases("please|pls|plz|thanks|thank you|cheers|many thanks|thanks in advance|thank you in advance")
"""What may stand behind a question. Taken off only behind a punctuation mark: see "How do you say thanks?"."""
LONGEST_THANKS = max(map(len, THANKS))

FRAMES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("how", "do", "i"): ("how", "to"),
    ("how", "can", "i"): ("how", "to"),
    ("how", "i", "can"): ("how", "to"),
    ("how", "does", "one"): ("how", "to"),
    ("how", "can", "one"): ("how", "to"),
    ("how", "one", "can"): ("how", "to"),
    ("how", "do", "we"): ("how", "to", "we"),
    ("how", "can", "we"): ("how", "to", "we"),
    ("how", "we", "can"): ("how", "to", "we"),
    ("is", "it", "possible", "to"): ("can", "i"),
    ("is", "it", "possible", "for", "me", "to"): ("can", "i"),
    ("am", "i", "able", "to"): ("can", "i"),
    ("i", "can"): ("can", "i"),
    ("what", "exactly"): ("what",),
}
"""Beginnings of questions that ask the same. "How do you" is not among them: "How do you handle my data?"."""
LONGEST_FRAME = max(map(len, FRAMES))

NOT_WITHOUT_ARTICLE = _set("few little lot bit number couple majority minority")
"""``a few`` is not ``few``, and ``a number`` not ``the number``."""

KEEPS_ARTICLE = _set("half all both double twice such quite many not")
"""``half the life`` is not ``half life``."""

DESIGNATED = _set(
    "vitamin hepatitis type grade plan class option group team category section part appendix schedule level series "
    "model exhibit figure block building gate terminal route line form bus influenza haemophilia hemophilia tier zone "
    "unit hall exit area phase point case side drug product company person player variable vector matrix set node list "
    "string column row table cell drive note key flat annex article clause lane stream version room platform"
)
"""Nouns that a letter may follow as a name, so that ``a`` need not be an article: ``vitamin a deficiency``."""

NO_PLURALS = _set(
    "news goods customs arms woods glasses spectacles savings times premises contents damages minutes "
    "windows teams interests terms rights shorts lens alias bias atlas canvas pandas rails options odds heads tails "
    "highs lows sales arts besides sometimes always less hers ours yours theirs tens hundreds thousands millions "
    "billions seconds thirds fifths quarters jeans tights pants mars venus kubernetes gas has was this thus yes its "
    "his us as forces colours colors letters manners looks grounds airs ashes brains compasses drawers forks funds "
    "greens humanities irons quarters scales stocks wits spirits futures securities bonds cookies bars stars maps "
    "docs sheets photos forms notes messages pages numbers keys games"
)
"""Words in ``-s`` that mean something else without it, or do so as the name of a thing."""

SPELLINGS = {
    "colour": "color", "colours": "colors", "flavour": "flavor", "flavours": "flavors", "neighbour": "neighbor",
    "neighbours": "neighbors", "favourite": "favorite", "behaviour": "behavior", "labour": "labor", "honour": "honor",
    "harbour": "harbor", "humour": "humor", "centre": "center", "centres": "centers", "litre": "liter",
    "litres": "liters", "metres": "meters", "kilometre": "kilometer", "kilometres": "kilometers", "theatre": "theater",
    "fibre": "fiber", "licence": "license", "licences": "licenses", "programme": "program", "programmes": "programs",
    "grey": "gray", "catalogue": "catalog", "cancelled": "canceled", "travelling": "traveling", "e-mail": "email",
    "e-mails": "emails", "versus": "vs", "which": "what", "whom": "who", "till": "until", "has": "have",
}  # fmt: skip
"""Words that are written in two ways or stand for one another in every question."""

CONTRACTIONS = {
    "cannot": ("can", "not"), "can't": ("can", "not"), "won't": ("will", "not"), "shan't": ("shall", "not"),
    "i'm": ("i", "am"), "i'd": ("i", "would"), "let's": ("let", "us"), "dont": ("do", "not"),
    "doesnt": ("does", "not"), "didnt": ("did", "not"), "isnt": ("is", "not"), "arent": ("are", "not"),
    "cant": ("can", "not"), "wasnt": ("was", "not"), "whats": ("what", "is"),
}  # fmt: skip
ENDINGS = {"n't": "not", "'re": "are", "'ve": "have", "'ll": "will"}
BEFORE_IS = _set("what who where when why how that there it he she which here")
"""Words behind which ``'s`` is ``is``; behind others it is a genitive."""

NAMES_TOO = _set(
    "polish turkey china may march august us it who aids apple amazon java rust go swift ruby reading nice mobile job "
    "mark bill will rose jordan chad target gap shell meta word excel slack oracle alphabet ford visa chase square "
    "stripe zoom teams access edge signal office windows safari spark hive flask express spring jaguar mercury saturn "
    "mars earth sun moon orange bush wood hill king cook baker smith brown black white green young long grace hope "
    "faith joy art drew frank jack pat rob sue grant guy rich gene dean earl duke prince pope lent cork bath wells "
    "deal sandwich hull phoenix buffalo troy python react angular node docker kafka pandas alien aliens cars friends "
    "lost speed heat drive up frozen inception notion discord teams chrome opera photos maps drive keep sheets docs "
    "forms pages numbers notes messages music home news cat dog hand ram rem ace pins act sat can has am is are led "
    "sars who new era crisp make case ids eta tag a i"
)
"""Words that mean something else where they are written as names."""
