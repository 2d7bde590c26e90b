"""Which language a text is in, and how its words are cut."""

import pytest

from crabpath_retrievers import Settings
from crabpath_retrievers.core.text import (
    contains_name,
    count_words,
    list_query_words,
    list_searched_words,
    normalise,
    normalise_name,
    tokenise,
)
from crabpath_retrievers.errors import InvalidInputError

TEXTS = {
    "The bridge was built in 1958 and is open to the public.": "en",
    "Die Brücke wurde 1958 gebaut und ist für alle offen.": "de",
    "Le pont a été construit en 1958 et il est ouvert au public.": "fr",
    "El puente fue construido en 1958 y es una obra de los ingenieros.": "es",
    "Il ponte è stato costruito nel 1958 e non è della città.": "it",
    "De brug werd in 1958 gebouwd en is niet open voor het publiek.": "nl",
    "Мост был построен в 1958 году и открыт для всех.": "ru",
    "Η γέφυρα χτίστηκε το 1958.": "el",
    "بني الجسر عام 1958.": "ar",
    "הגשר נבנה בשנת 1958.": "he",
    "XR-47 B12 🚀🚀": None,
    "Müller": "de",
    "kiwi": None,
    "": None,
}


def test_languages_are_told_by_frequent_words_and_scripts():
    """A text of one word, or of emoji, has none; nor is one of few foreign words English's."""
    for text, language in TEXTS.items():
        assert list_searched_words(text) == list_searched_words(text, language or "en")
        if language not in {None, "en"}:  # others have forms of words
            assert list_searched_words(text) != list_searched_words(text, "en")


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Die Universitäten wurden für alle geöffnet.", "Wann wurde die Universität eröffnet?"),
        ("Die Straße führt zur Mühle, und das ist weit.", "Wo ist die Muehle?"),
        ("Das ist die Hamburgmühle, und sie wurde gebaut.", "Wo ist die Mühle?"),
        ("Das ist die Hamburgmühle, und sie wurde gebaut.", "Hamburg Muehle"),
        ("Les chevaux sont dans la ville et il pleut.", "Où est le cheval dans la ville?"),
        ("Дома были построены в городе.", "Кто построил дом?"),
        ("ذهب الطالب إلى المدرسة", "مدرسة"),
        ("הוא גר בירושלים", "ירושלים"),
        ("데이터베이스 백업은 매일 밤 실행된다", "백업"),
        ("ต้องสำรองข้อมูลทุกวัน", "สำรองข้อมูล"),
        ("ຕ້ອງສຳຮອງຂໍ້ມູນທຸກມື້", "ສຳຮອງຂໍ້ມູນ"),
        ("ត្រូវបម្រុងទុកទិន្នន័យ", "ទិន្នន័យ"),
        ("ဒေတာကို အရန်သိမ်းပါ", "ဒေတာ"),
        ("東京は日本の首都です", "首都"),
        ("山がある", "山"),
    ],
)
def test_a_question_shares_words_with_its_text(text, question):
    """Inflected, in parts, in another spelling, or between other characters; not with English."""
    asked = set(list_query_words(question))
    assert asked & set(list_searched_words(text))
    assert not asked & set(list_searched_words("The bridge was built in 1958 and is open to you."))


def test_english_has_its_words_alone():
    """Neither stems nor pairs, in texts and in questions."""
    text = "Who built the bridges of Königsberg for the public?"
    assert list_query_words(text) == list_searched_words(text) == tokenise(text)
    assert list_query_words("Wo ist das?", "en") == tokenise("Wo ist das?")


def test_characters_of_a_run_are_searched_in_pairs():
    assert list_query_words("東京へ、山 for a", "ja") == ["山", "for", "a", "東京", "京へ"]
    assert list_searched_words("東京") == ["東", "京", "東京"]


def test_marks_stay_where_they_change_the_word():
    """Kana, Thai and Hindi keep them, composed or not; Arabic and Hebrew points are optional."""
    assert normalise("ガラス") == normalise("カ\u3099ラス") == "ガラス" != normalise("カラス")
    assert normalise("กรุงเทพ") == "กรุงเทพ"
    assert tokenise("हिन्दी") == ["हिन्दी"]
    assert normalise("مُحَمَّد") == "محمد"
    assert normalise("שָׁלוֹם") == "שלום"


def test_two_characters_count_as_a_word():
    assert [count_words(text) for text in ("two words", "東京日本", "백업은 매일", "")] == [
        2,
        2,
        2.5,
        0,
    ]


@pytest.mark.parametrize(
    ("text", "name", "stands"),
    [
        ("東京都の人口", "京都", False),
        ("昨日京都へ行った", "京都", True),
        ("庭にカラスミがある", "カラス", False),
        ("北京大学第一附属医院工作", "第一附属医院", True),
        ("서울은 크다", "서울", True),
        ("남서울은 크다", "서울", False),
        ("부산물은 많다", "부산", False),
        ("京", "京", True),
        ("Bergamot", "Berg", True),  # of a script with spaces, tokens tell
    ],
)
def test_names_stand_by_themselves(text, name, stands):
    assert contains_name(text, normalise_name(name)) is stands


def test_an_unknown_language_is_refused():
    assert Settings(language="de").language == "de"
    assert all(Settings(language=name).language == name for name in ("en", "ja", "th"))
    with pytest.raises(InvalidInputError, match="'xx' is not known: use None, or one of ar, "):
        Settings(language="xx")
