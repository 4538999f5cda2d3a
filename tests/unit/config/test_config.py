from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from retrieval_core import open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import RetrievalConfig, load_config, parse_value, preset_names
from retrieval_core.errors import ConfigurationError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, text: str) -> Path:
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problems_of(file: Path | str | None = None, overrides: Any = None, environment: Any = None) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load_config(file, overrides, environment)
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    return caught.value.problems


def test_defaults() -> None:
    """Without any source the defaults hold, whatever the process's own environment says."""
    assert load_config() == RetrievalConfig()
    assert load_config(overrides={}, environment={}) == RetrievalConfig()


def test_each_source_overrides_the_one_before(tmp_path: Path) -> None:
    """Defaults give way to the file, the file to the environment, the environment to arguments, key by key."""
    file = written(tmp_path, '[search]\ntop_k = 1\ncandidates = 2\nfusion = "rrf"\n')
    environment = {"RETRIEVAL_SEARCH__CANDIDATES": "3", "RETRIEVAL_SEARCH__FUSION": "dbsf", "PATH": "/bin"}
    search = load_config(file, {"search.fusion": "minmax"}, environment).search
    assert (search.top_k, search.candidates, search.fusion, search.mode) == (1, 3, "minmax", "hybrid")


def test_overrides_are_trees_or_dotted_keys() -> None:
    """Both ways to write an override join, the later ones winning, and the caller's tree stays as it was."""
    tree = {"top_k": 3, "fusion": "rrf"}
    config = load_config(
        overrides={
            "search": tree,
            "search.top_k": "4",
            "store.custom.a.b": 1,
            "strict": True,
            "store.kind": "own:store",
        }
    )
    assert (config.search.top_k, config.search.fusion, config.strict) == (4, "rrf", True)
    assert config.store.custom == {"a": {"b": 1}}
    assert tree == {"top_k": 3, "fusion": "rrf"}


@pytest.mark.parametrize("backwards", [True, False])
def test_the_environment_may_hold_a_whole_section(backwards: bool) -> None:
    """A section is written as JSON; a key of its own wins over it, in whatever order the environment has them."""
    environment = {"RETRIEVAL_SEARCH": '{"top_k": 3, "fusion": "rrf"}', "RETRIEVAL_SEARCH__TOP_K": "4"}
    ordered = dict(reversed(environment.items())) if backwards else environment
    search = load_config(environment=ordered).search
    assert (search.top_k, search.fusion) == (4, "rrf")


def test_every_type_can_be_set_from_the_environment() -> None:
    """Text becomes the setting's own type; ``null`` unsets."""
    config = load_config(
        environment={
            "RETRIEVAL_INDEX": "8",
            "RETRIEVAL_STRICT": "true",
            "RETRIEVAL_DEADLINE_SECONDS": "null",
            "RETRIEVAL_SEARCH__SCORE_THRESHOLD": "0.5",
            "RETRIEVAL_EMBEDDER__LOCAL__MODEL_FOLDER": "models/small",
            "RETRIEVAL_STORE__KIND": "own:store",
            "RETRIEVAL_STORE__CUSTOM": '{"port": 6333}',
            "retrieval_chunking__max_tokens": "64",
        }
    )
    assert config.index == "8"
    assert config.strict is True
    assert config.deadline_seconds is None
    assert config.search.score_threshold == 0.5
    assert config.embedder.local.model_folder is not None
    assert config.embedder.local.model_folder.name == "small"
    assert config.store.custom == {"port": 6333}
    assert config.chunking.max_tokens == 64


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    """One error lists what is wrong in all sources, one line each, beginning with the key."""
    search = '[search]\ntop_k = 0\nmodus = "dense"\nfusion = "sum"\n'
    file = written(tmp_path, f'indx = "a.db"\nstrict = "perhaps"\n{search}[format]\ntemplate = "{{"\n')
    environment = {"RETRIEVAL_STROE__KIND": "memory", "RETRIEVAL_CHUNKING__MAX_TOKENS": "many"}
    problems = problems_of(file, {"search.dense_weight": 1.5}, environment)
    keys = ["RETRIEVAL_STROE__KIND", "chunking.max_tokens", "format.template", "indx", "search.dense_weight"]
    keys += ["search.fusion", "search.modus", "search.top_k", "strict"]
    assert sorted(problem.split(":")[0] for problem in problems) == sorted(keys)
    with pytest.raises(ConfigurationError, match=r"9 problems \(read from .*settings.toml\)"):
        load_config(file, {"search.dense_weight": 1.5}, environment)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"search.topk": 5}, "search.topk: unknown setting; did you mean top_k?"),
        ({"serch.top_k": 5}, "serch: unknown setting; did you mean search?"),
        ({1: 2}, "1: is not the name of a setting, which is text"),
        ({"search.zzzzz": 5}, "search.zzzzz: unknown setting"),
        ({"search.top_k": 5000}, "search.top_k: Input should be less than or equal to 1000, got 5000"),
        ({"transform.use": "hyde"}, 'transform.use: Input should be a list such as ["a", "b"], got \'hyde\''),
        ({"chunking.columns": "title"}, "chunking.columns: Input should be a table such as {\"a\": 1}, got 'title'"),
        ({"search.mode": "fuzzy"}, "search.mode: Input should be 'hybrid', 'dense' or 'lexical', got 'fuzzy'"),
        (
            {"format.template": "{title!r}"},
            "format.template: a field of a template must be only a name in braces, as in {title}, got '{title!r}'",
        ),
    ],
)
def test_a_problem_names_key_reason_and_value(overrides: dict[str, Any], problem: str) -> None:
    """A line says what is wrong, what was given, and the nearest key where one is unknown."""
    assert problems_of(overrides=overrides) == (problem,)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "", "0,5"])
def test_what_is_no_number_is_no_weight(value: str) -> None:
    """Numbers outside their range, or that are none, are refused."""
    (problem,) = problems_of(overrides={"search.dense_weight": value})
    assert problem.startswith("search.dense_weight: ")


def test_a_section_is_a_table() -> None:
    """A plain value where a section belongs is a problem of that section."""
    (problem,) = problems_of(environment={"RETRIEVAL_SEARCH": "dense"})
    assert problem.startswith("search: ")
    (problem,) = problems_of(overrides={"search": [1]})
    assert problem.startswith("search: ")


def test_names_of_the_environment_that_are_others_business() -> None:
    """A name with the prefix is a mistake only where it is close to a setting's; others may be anyone's."""
    assert load_config(environment={"RETRIEVAL_HOME_OF_SOMEBODY_ELSE": "1", "RETRIEVE": "2"}) == RetrievalConfig()
    (problem,) = problems_of(environment={"RETRIEVAL_STRIKT": "1"})
    assert problem == "RETRIEVAL_STRIKT: unknown setting; did you mean RETRIEVAL_STRICT?"
    (problem,) = problems_of(environment={"RETRIEVAL_SEARCH__TOPK": "1"})
    assert problem == "search.topk: unknown setting; did you mean top_k?"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("RETRIEVAL_SEARCH_TOP_K", "RETRIEVAL_SEARCH__TOP_K"),
        ("RETRIEVAL_STORE_KIND", "RETRIEVAL_STORE__KIND"),
        ("RETRIEVAL_STORE_QDRANT_URL", "RETRIEVAL_STORE__QDRANT__URL"),
        ("RETRIEVAL_RERANKER_CROSS_ENCODER__MODEL", "RETRIEVAL_RERANKER__CROSS_ENCODER__MODEL"),
    ],
)
def test_names_of_the_environment_with_too_few_underscores(name: str, meant: str) -> None:
    """Section, table and setting are told apart, so that the first suggestion is right."""
    assert problems_of(environment={name: "1"}) == (f"{name}: unknown setting; did you mean {meant}?",)
    (problem,) = problems_of(environment={"RETRIEVAL_STORE__QDRANT_URL": "1"})
    assert problem == "store.qdrant_url: unknown setting; did you mean store.qdrant.url?"


def test_an_argument_is_not_said_to_come_from_a_file(tmp_path: Path) -> None:
    """A wrong argument is not said to come from the file that was read too."""
    file = written(tmp_path, "[search]\ntop_k = 3\n")
    with pytest.raises(ConfigurationError, match=r"^the configuration has 1 problem:"):
        load_config(file, {"search.top_k": 0})


def test_presets_are_read_by_name() -> None:
    """Each preset that comes with the library is complete and valid; a name may be written as a path."""
    assert "lexical" in preset_names()
    for name in preset_names():
        assert load_config(name) == load_config(f"presets/{name}.toml")
    lexical = load_config("lexical", {"search.top_k": 3})
    assert (lexical.embedder.kind, lexical.search.mode, lexical.search.top_k) == ("none", "lexical", 3)


def test_settings_are_no_file() -> None:
    with pytest.raises(ConfigurationError, match=r"type dict; for settings call load_config\(overrides="):
        load_config({"search.top_k": 5})  # type: ignore[arg-type]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The error names the file, and the presets that there are."""
    with pytest.raises(ConfigurationError, match=r"nothing\.toml.*presets are .*lexical"):
        load_config(tmp_path / "nothing.toml")
    with pytest.raises(ConfigurationError, match="no configuration file"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"top_k = ", "not valid TOML"), (b"a = 1\na = 2", "not valid TOML"), (b"a = '\xff'", "cannot be read")],
)
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes, reason: str) -> None:
    """The error names the file and what is wrong with it."""
    file = tmp_path / "settings.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"settings\.toml .*{reason}"):
        load_config(file)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        ("[1, 2]", [1, 2]),
        ('{"a": true}', {"a": True}),
        ("[a", "[a"),
        ("8", "8"),
        ("true", "true"),
        ("", ""),
        ("{title}", "{title}"),
    ],
)
def test_values_that_came_as_text(text: str, value: object) -> None:
    """Lists, objects and ``null`` are read as JSON, everything else is left to the setting's type."""
    assert parse_value(text) == value


def test_settings_cannot_be_changed() -> None:
    """A configuration is frozen, all the way down."""
    config = RetrievalConfig()
    with pytest.raises(ValidationError):
        config.strict = True  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValidationError):
        config.search.top_k = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_a_configuration_can_be_written_and_read_back() -> None:
    """What is dumped as JSON is read back to an equal configuration, apart from what may be a secret."""
    config = load_config(overrides={"search.top_k": 3, "embedder.local.model_folder": "m"})
    assert load_config(overrides=json.loads(config.model_dump_json())) == config


def test_a_setting_in_the_wrong_place_is_told_the_right_one() -> None:
    """One underscore for two in the environment, and a key without its section."""
    with pytest.raises(ConfigurationError, match="RETRIEVAL_SEARCH__TOP_K"):
        load_config(environment={"RETRIEVAL_SEARCH_TOP_K": "3"})
    with pytest.raises(ConfigurationError, match=r"search\.top_k"):
        load_config(overrides={"top_k": 3})


def test_an_empty_variable_does_not_hide_a_vendors_own() -> None:
    """Containers are often given variables without a value; a namespace alone may be empty on purpose."""
    blank = {"RETRIEVAL_LLM__OPENAI__API_KEY": "", "RETRIEVAL_STORE__PINECONE__INDEX_NAME": ""}
    vendors = {"OPENAI_API_KEY": "o", "PINECONE_INDEX_NAME": "i", "PINECONE_NAMESPACE": "n"}
    config = load_config(environment={**blank, **vendors, "RETRIEVAL_STORE__PINECONE__NAMESPACE": ""})
    assert config.llm.openai.api_key is not None
    assert config.llm.openai.api_key.get_secret_value() == "o"
    assert (config.store.pinecone.index_name, config.store.pinecone.namespace) == ("i", "")


@pytest.mark.parametrize(
    ("search_type", "given"), [("similarity", "configured"), ("similarity", "called"), ("mmr", "called")]
)
def test_more_may_be_asked_for_than_mmr_chooses_from(search_type: str, given: str) -> None:
    """A call's ``top_k`` above ``fetch_k`` and ``candidates`` simply works: both are raised to it."""
    settings: dict[str, Any] = {"search.search_type": search_type, "search.fetch_k": 5, "search.candidates": 7}
    settings |= {"search.top_k": 30 if given == "configured" else 3}
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    with open_index(config=load_config(overrides=settings), embedder=embedder, store=store) as index:
        texts = [f"A sturdy phone of the brand {'x' * number}y" for number in range(1, 41)]
        index.add([Chunk(f"{number}", f"{number}", text) for number, text in enumerate(texts)])
        result = index.retrieve("sturdy phone", top_k=30 if given == "called" else None)
    assert len({hit.id for hit in result.hits}) == 30
    assert result.degraded == ()


def test_a_fixed_weight_is_equal_unless_it_is_set() -> None:
    """What the weight means depends on the fusion, so the default does too; what was set stays."""
    assert load_config().search.dense_weight == 0.65
    assert load_config(overrides={"search.fusion": "rrf"}).search.dense_weight == 0.5
    assert load_config(overrides={"search.fusion": "rrf", "search.dense_weight": 0.65}).search.dense_weight == 0.65
    assert load_config(overrides={"search.dense_weight": 0.3}).search.dense_weight == 0.3
