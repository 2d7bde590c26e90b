"""What differs by language: which one a text is in, stems of its words, and where words begin.

Stems are those of Snowball (Porter 2001). Where words are not set apart by spaces, BudouX finds
where they begin; without a model for a script, every character may begin one.
"""

import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from itertools import accumulate
from typing import Any

from crabpath_retrievers.errors import InvalidInputError

_STEMMERS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hi": "hindi",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sv": "swedish",
    "tr": "turkish",
}
_WITH_COMPOUNDS = frozenset(("da", "de", "fi", "hu", "nl", "no", "sv"))
LANGUAGES = frozenset((*_STEMMERS, "en", "he", "ja", "km", "ko", "lo", "my", "th", "zh"))
"""Codes (ISO 639-1) of the languages that are known."""

# Words that are frequent in one language, as tokens, without those of the English vocabulary.
_FREQUENT = {
    "en": "the of and to that for it on are as with by at from this be which what who how when "
    "where why does did do can has have not you your i my we",
    "ca": "els amb per les dels als aquest aquesta quin quina que com qui",
    "cs": "je se na ze jako pro ktery jsou byl kde kdo jak kdy ale nebo jeho pri",
    "da": "og er af det til en den der med som ikke hvad hvor hvem hvornar hvilken blev var et",
    "de": "der das und ist von mit den dem ein eine einer einem einen nicht auf fur sich auch "
    "werden wurde wird zu im des wie wer wo wann welche welcher welches welchen warum hat bei "
    "nach aus dass sind durch uber oder zum zur ich wir sie man kann haben muss mein meine als "
    "nur wenn",
    "es": "el los las del es una que en por con para se su como cual quien cuando donde fue "
    "cuantos cuanto al lo",
    "fi": "ja on ei oli etta se mika missa kuka milloin kuinka joka ovat kun myos mutta sen",
    "fr": "le les des du et est une dans que qui pour sur avec sont au aux quel quelle quels "
    "combien ou pas cette ces il elle je nous vous comment quand pourquoi la",
    "hu": "az es hogy nem egy van volt mi ki hol mikor milyen melyik meg ezt",
    "it": "il gli della di che una per con non del dei nel sono come quale chi quando dove "
    "fu delle alla quanti la lo",
    "nl": "de het een van en dat op te zijn met voor niet aan er om wie wat waar wanneer welke "
    "hoe werd wordt ik hoeveel",
    "no": "og er av det til en den der med som ikke hva hvor hvem nar hvilken ble var et fra",
    "pl": "jest nie sie na ze jak co kto gdzie kiedy ktory ktora dla przez czy oraz byl byc",
    "pt": "os da das dos em uma que para com nao por qual quem quando onde foi ao sao mais",
    "ro": "si este din cu pentru care sunt ce cine unde cand cum mai fost lui nu pe",
    "sv": "och ar av det till en den som inte vad var vem nar vilken for med pa att ett fran",
    "tr": "ve bir bu ne kim nerede hangi icin ile olarak olan nasil cok da de mi mu",
    "ru": "и в не на что с по как это для из к от кто где когда какои какая о а был",
}
_LANGUAGES_OF: dict[str, list[str]] = {}
for _language, _words in _FREQUENT.items():
    for _word in _words.split():
        _LANGUAGES_OF.setdefault(_word, []).append(_language)
_ALL_FREQUENT = frozenset(_LANGUAGES_OF)
# Besides those, which tell languages apart.
_OF_QUESTIONS = frozenset(
    (
        *("a", "an", "am", "if", "me", "us", "our", "so", "or", "but", "here", "there", "whom"),
        *("must", "may", "might", "should", "would", "could", "will", "shall", "need", "want"),
        *("ask", "get", "please", "any", "some", "hier", "dort", "muss", "soll", "sollte", "bitte"),
        *("wen", "wem"),
    )
)
_OF_SENTENCES = frozenset(
    (
        *("all", "then", "than", "into", "out", "up", "no", "was", "were", "its", "their", "they"),
        *("in", "is", "also", "while", "about"),
    )
)
_SCRIPTS = {
    "el": re.compile("[\u0370-\u03ff]{3}"),
    "he": re.compile("[\u05d0-\u05ea]{2}"),
    "ar": re.compile("[\u0621-\u064a]{2}"),
    "hi": re.compile("[\u0904-\u0939]"),
    "ru": re.compile("[\u0430-\u044f]{3}", re.IGNORECASE),
}
_UMLAUT = re.compile("[äöüßÄÖÜ]|[aou]\u0308")
_FEW_WORDS = 12  # of a text in which one frequent word decides
_ARTICLES = frozenset(
    f"{stem}{ending}"
    for stem in ("ein", "kein", "jed", "dies", "mein", "sein", "ihr", "unser")
    for ending in ("", "e", "er", "es", "em", "en")
) | {"der", "die", "das", "dem", "den", "des", "im", "am", "zum", "zur", "vom", "beim", "ins"}
_PREPOSITIONS = frozenset(
    ("zwischen", "uber", "unter", "hinter", "neben", "gegen", "ohne", "wegen")
)
_ADJECTIVE_ENDINGS = ("e", "en", "er", "es", "em")
_HEBREW_PREFIX = re.compile("[\u05d5\u05de\u05e9\u05d4\u05db\u05dc\u05d1]{1,2}(?=\\w{3})")
# "And the", which Snowball leaves.
_ARABIC_AND = re.compile(
    "^[\u0648\u0641](?=(?:\u0627\u0644|\u0628\u0627\u0644|\u0644\u0644)\\w{3})"
)
_DIGRAPH = re.compile("ae|oe|(?<![aeq])ue")


def is_frequent(token: str) -> bool:
    """Whether a word is among the most frequent ones of a language that is known."""
    return token in _ALL_FREQUENT or token in _OF_QUESTIONS


def is_function_word(token: str) -> bool:
    """Whether a word is a function word of a known language, which names nothing."""
    return is_frequent(token) or token in _OF_SENTENCES


def require_language(code: str | None) -> str | None:
    """Return the member of ``LANGUAGES`` for a code such as "de-AT" or "nb"; None for None."""
    if code is None:
        return None
    short = re.split("[-_]", code.strip().lower())[0]
    short = {"nb": "no", "nn": "no"}.get(short, short)
    if short not in LANGUAGES:
        known = ", ".join(sorted(LANGUAGES))
        msg = f"language {code!r:.40} is not known: use None, or one of {known}"
        raise InvalidInputError(msg)
    return short


def detect_language(text: str, tokens: Collection[str]) -> str | None:
    """Detect the language of a text by script or frequent words; None if they tell too little."""
    found = _ALL_FREQUENT.intersection(tokens)
    counts = Counter(language for word in found for language in _LANGUAGES_OF[word])
    if not text.isascii():
        counts["de"] += bool(_UMLAUT.search(text))
    (best, most), (_, second) = (*counts.most_common(2), ("", 0), ("", 0))[:2]
    if most > second and (most > 1 or len(tokens) <= _FEW_WORDS):
        return best
    return None if text.isascii() or most else find_script(text)


def find_script(text: str) -> str | None:
    """Find the language whose script a text or a word has; None if no language alone has it."""
    return next((code for code, script in _SCRIPTS.items() if script.search(text)), None)


def follows_article(token: str, *, after_article: bool) -> bool:
    """Whether the word after a German token has an article; few names have one.

    ``after_article`` says whether the token, perhaps an adjective, has an article itself.
    """
    if token in _ARTICLES:
        return True
    # Adjectives are written small, "Dichter" in "der Dichter Goethe" is none.
    return after_article and token not in _PREPOSITIONS and token.endswith(_ADJECTIVE_ENDINGS)


def has_stems(language: str | None) -> bool:
    """Whether words of a language are also found by their stems; False for English and None."""
    return language in _STEMMERS or language == "he"


def has_compounds(language: str | None) -> bool:
    """Whether a language writes compounds as one word; False for None."""
    return language in _WITH_COMPOUNDS


@lru_cache(maxsize=65_536)
def find_stem(word: str, language: str) -> str:
    """The stem of a word in lower case, of a language that has stems.

    In German "ue" counts as "ü"; in Hebrew up to two letters are cut as prefixes.
    """
    if language == "he":
        return _HEBREW_PREFIX.sub("", word, count=1)
    from snowballstemmer import stemmer

    if language == "ar":
        word = _ARABIC_AND.sub("", word)
    if language == "de":
        word = _DIGRAPH.sub(lambda found: found.group()[0], word)
    # A stemmer keeps the word that it works on, so that threads cannot share it.
    stem: str = stemmer(_STEMMERS[language]).stemWord(word)
    return stem


@lru_cache(maxsize=4096)
def find_word_starts(text: str) -> frozenset[int]:
    """Places in a text without spaces at which BudouX begins a phrase."""
    if re.search("[\u3040-\u30ff]", text):
        name = "japanese"
    elif re.search("[\u0e00-\u0e7f]", text):
        name = "thai"
    else:
        name = "simplified_chinese"
    phrases: list[str] = _load_segmenter(name).parse(text)
    return frozenset(accumulate(map(len, phrases), initial=0))


@lru_cache(maxsize=4)
def _load_segmenter(name: str) -> Any:
    import budoux

    return getattr(budoux, f"load_default_{name}_parser")()
