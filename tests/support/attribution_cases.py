"""Passages, and sentences of answers of which it is known what passage they are from, if from any."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from retrieval_core.types import Citation, ContextPassage, Quote, Span

Kind: TypeAlias = Literal["quoted", "paraphrased", "combined", "unrelated", "altered"]
"""In the passage's words; in others; from several of its sentences; about something else; with another figure."""


class Case(NamedTuple):
    """A sentence, the passage that it cites, and what it has to do with it."""

    kind: Kind
    passage: int
    sentence: str

    @property
    def is_from(self) -> bool:
        """Whether the passage holds it."""
        return self.kind in {"quoted", "paraphrased", "combined"}


MACHINE = (
    "## Descaling\n\nThe machine must be descaled every 300 cups or when the orange lamp blinks. Empty the drip "
    "tray and "
    "remove the water filter before you begin. Fill the tank with 500 ml of descaling solution and 500 ml of water. "
    "Press both buttons for 5 seconds to start the programme. It takes about 25 minutes and must not be interrupted. "
    "Rinse the tank twice afterwards. Vinegar damages the seals of the pump and voids the warranty."
)
LEAVE = (
    "Employees receive 28 days of paid leave per calendar year. Requests are approved by the line manager within "
    "five "
    "working days.\n\n- Up to 5 unused days can be carried over until 31 March.\n- Parents get 10 additional days "
    "in the "
    "year in which a child is born.\n- Leave during the probation period of six months needs the consent of the "
    "personnel "
    "office.\n\nSick days during a holiday are given back if a doctor's certificate is handed in within 3 days."
)
BRIDGE = (
    "Construction of the Harrow Bridge began in 1927 under the engineer Maria Lindqvist. The original design was a "
    "suspension bridge with steel cables, but cost overruns led to a cantilever of riveted beams. It was opened "
    "to traffic "
    "on 4 June 1931 and cost 2.3 million pounds. Two workers died when a crane collapsed in a storm. In 1978 the "
    "deck was "
    "widened to four lanes. Trams crossed the bridge until 1954, when the line was replaced by buses."
)
SYNC = (
    "The controller compares the live state with the desired state in Git every 3 minutes. Automatic "
    "synchronisation is off "
    "by default; it is enabled per application.\n\n```yaml\nsyncPolicy:\n  automated:\n    prune: true\n    "
    "selfHeal: "
    "true\n```\n\nResources that were deleted from Git are only removed from the cluster if pruning is allowed. With "
    "self-healing, changes that somebody makes in the cluster by hand are reverted after 5 seconds."
)
REPORT = (
    "| Region | Revenue 2022 | Revenue 2023 |\n|---|---|---|\n| Northern Europe | 41.2 | 44.9 |\n| Asia Pacific | "
    "17.8 | 25.1 "
    "|\n| Latin America | 9.4 | 8.7 |\n\nAll values are in millions of euros. Growth in Asia came mainly from two "
    "new "
    "distribution centres in Osaka and Busan. The loss of a large customer in Brazil explains the decline in "
    "Latin America."
)
MEDICINE = (
    "Adults take one tablet of 400 mg every eight hours with food. Do not take more than 1200 mg in 24 hours. The "
    "medicine "
    "must not be given to children under 12 years. Tell your doctor if you take blood thinners, because the risk "
    "of bleeding "
    "rises. Common side effects are nausea, headache and dizziness. Store it below 25 °C in the original package."
)
OWLS = (
    "Barn owls locate their prey by hearing alone. The left ear opening sits higher than the right one, so that a "
    "sound from "
    "below is louder in one of them. The facial disc gathers sound like a dish. In experiments in total darkness, "
    "owls struck "
    "mice with an error of less than two degrees. Soft fringes on the wing feathers make their flight almost silent."
)
GERMAN = (
    "Der Antrag auf Elternzeit muss sieben Wochen vor Beginn schriftlich beim Arbeitgeber eingehen. Während der "
    "Elternzeit "
    "besteht ein besonderer Kündigungsschutz. Eine Teilzeitarbeit von bis zu 32 Stunden pro Woche ist erlaubt."
)
TEXTS = (MACHINE, LEAVE, BRIDGE, SYNC, REPORT, MEDICINE, OWLS, GERMAN)


def passage(number: int, *texts: str, start: int | None = 0, title: str | None = None) -> ContextPassage:
    """Return a passage of these quotes, which stand one behind the other in their document, ten characters apart."""
    quotes: list[Quote] = []
    for text in texts:
        quotes.append(Quote(text, None if start is None else Span(start, start + len(text))))
        start = None if start is None else start + len(text) + 10
    citation = Citation(number, f"doc-{number}", (f"doc-{number}#0",), tuple(quotes), title=title)
    return ContextPassage(f"doc-{number}#0", "primary", "\n[…]\n".join(texts), citation, (), f"doc-{number}#0", 1)


PASSAGES = tuple(passage(number, text) for number, text in enumerate(TEXTS, start=1))

CHOOSING = (
    Case("quoted", 1, "The machine must be descaled every 300 cups or when the orange lamp blinks."),
    Case("quoted", 3, "Construction of the Harrow Bridge began in 1927 under the engineer Maria Lindqvist."),
    Case("quoted", 6, "Common side effects are nausea, headache and dizziness."),
    Case("quoted", 7, "Barn owls locate their prey by hearing alone."),
    Case("quoted", 8, "Während der Elternzeit besteht ein besonderer Kündigungsschutz."),
    Case("quoted", 4, "Automatic synchronisation is off by default."),
    Case("paraphrased", 1, "Do not use vinegar, as it harms the pump's seals and you lose your warranty."),
    Case("paraphrased", 2, "Each employee is entitled to 28 paid days off every calendar year."),
    Case("paraphrased", 3, "The bridge opened for traffic in June 1931."),
    Case("paraphrased", 4, "Manual changes made in the cluster are undone after 5 seconds when self-healing is on."),
    Case("paraphrased", 5, "Revenue in Asia Pacific rose from 17.8 to 25.1 million euros."),
    Case("paraphrased", 6, "Children younger than 12 should not be given this medicine."),
    Case("paraphrased", 7, "Their wings have soft fringes which make flying nearly silent."),
    Case("combined", 1, "Fill in 500 ml of solution and 500 ml of water, then hold both buttons for 5 seconds."),
    Case(
        "combined", 2, "You can carry over up to 5 days until 31 March, and parents get 10 more in the year of birth."
    ),
    Case("combined", 3, "Begun in 1927 under Lindqvist, it opened in 1931 at a cost of 2.3 million pounds."),
    Case("combined", 6, "Take one 400 mg tablet every eight hours and never more than 1200 mg in 24 hours."),
    Case("unrelated", 1, "The grinder should be cleaned with a soft brush once a month."),
    Case("unrelated", 2, "Overtime is paid at one and a half times the hourly rate."),
    Case("unrelated", 3, "The museum on the river bank is closed on Mondays."),
    Case("unrelated", 4, "Secrets should be encrypted before they are stored in a repository."),
    Case("unrelated", 6, "Barn owls locate their prey by hearing alone."),
    Case("unrelated", 7, "The penguin feeds its young with fish that it carries in its throat."),
    Case("unrelated", 5, "The company was founded by two brothers in Helsinki."),
    Case("altered", 1, "The machine must be descaled every 400 cups or when the orange lamp blinks."),
    Case("altered", 2, "Employees receive 30 days of paid leave per calendar year."),
    Case("altered", 3, "In 1978 the deck was widened to six lanes."),
    Case("altered", 4, "The controller compares the live state with the desired state in Git every 5 minutes."),
    Case("altered", 5, "Northern Europe had revenue of 44.9 million euros in 2022 and 51.3 million in 2023."),
    Case("altered", 6, "Adults take one tablet of 600 mg every eight hours with food."),
    # With another unit, and so short that one word makes another sentence of them.
    Case("altered", 1, "Press both buttons for 5 minutes to start the programme."),
    Case("altered", 3, "It was opened to traffic on 4 June 1931 and cost 2.3 million dollars."),
    Case("altered", 6, "Adults take one tablet of 400 \u00b5g every eight hours with food."),
    Case("altered", 6, "Store it below 25 °F in the original package."),
    Case("unrelated", 7, "Owls eat stones."),
    Case("unrelated", 2, "Parents receive medals."),
    Case("unrelated", 3, "Trams carry mail."),
    Case("quoted", 7, "Owls struck mice."),
    Case("paraphrased", 6, "In the package it must be stored below 25 °C."),
    Case("paraphrased", 4, "It compares them every 180 seconds with the desired state in Git."),
)
"""By these the thresholds were chosen."""

CHECKING = (
    Case("quoted", 1, "Rinse the tank twice afterwards."),
    Case("quoted", 2, "Requests are approved by the line manager within five working days."),
    Case("quoted", 3, "Two workers died when a crane collapsed in a storm."),
    Case("quoted", 5, "The loss of a large customer in Brazil explains the decline in Latin America."),
    Case("quoted", 6, "Store it below 25 °C in the original package."),
    Case("quoted", 8, "Eine Teilzeitarbeit von bis zu 32 Stunden pro Woche ist erlaubt."),
    Case("paraphrased", 1, "The descaling programme runs for roughly 25 minutes and should not be interrupted."),
    Case(
        "paraphrased", 2, "During the six-month probation period you need the personnel office's consent to take leave."
    ),
    Case("paraphrased", 3, "Until 1954 trams ran over the bridge; then buses replaced them."),
    Case("paraphrased", 4, "Deleted resources are removed from the cluster only when pruning is allowed."),
    Case("paraphrased", 5, "In Latin America, revenue fell to 8.7 million euros in 2023."),
    Case("paraphrased", 6, "Patients on blood thinners should inform their doctor since bleeding becomes more likely."),
    Case("paraphrased", 7, "In complete darkness, owls hit mice with an error below two degrees."),
    Case(
        "combined", 1, "Before you begin, empty the drip tray and take out the filter; rinse the tank twice at the end."
    ),
    Case("combined", 3, "Planned as a suspension bridge, it became a cantilever, and its deck was widened in 1978."),
    Case("combined", 4, "The state is compared every 3 minutes, but automatic synchronisation must be enabled first."),
    Case(
        "combined", 7, "Their asymmetric ears and the facial disc, which gathers sound like a dish, tell where prey is."
    ),
    Case("unrelated", 1, "Use freshly roasted beans for the best taste."),
    Case("unrelated", 2, "The canteen offers a vegetarian meal on every working day."),
    Case("unrelated", 3, "Ferries crossed the strait before there was a tunnel."),
    Case("unrelated", 4, "Trams crossed the bridge until 1954."),
    Case("unrelated", 5, "Profit is taxed at a lower rate in some countries of Europe."),
    Case("unrelated", 6, "Physical exercise lowers blood pressure in most adults."),
    Case("unrelated", 7, "Bats emit calls of high frequency and listen to the echo."),
    Case("altered", 1, "It takes about 45 minutes and must not be interrupted."),
    Case("altered", 2, "Parents get 12 additional days in the year in which a child is born."),
    Case("altered", 3, "It was opened to traffic on 4 June 1936 and cost 2.3 million pounds."),
    Case("altered", 4, "With self-healing, changes made by hand are reverted after 50 seconds."),
    Case("altered", 5, "Asia Pacific had revenue of 27.1 million euros in 2023."),
    Case("altered", 6, "The medicine must not be given to children under 16 years."),
)
"""By these it was looked at how well they were chosen."""
