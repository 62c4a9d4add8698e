"""Token ids and text: pieces, whole texts and streams, for both kinds of vocabulary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from engine.config.errors import UserError
from engine.pairs.toy import toy_tokenizer
from engine.text.chat import format_template, own_template
from engine.text.tokenizer import Tokenizer, byte_alphabet, first_difference, known_to_one

TOY = Tokenizer(toy_tokenizer(), name="toy", eos_ids=(1,), bos_id=0)


def sentencepiece(words: tuple[str, ...] = ("▁the", "▁river", "s", "▁")) -> Tokenizer:
    """The Llama 2 kind: `▁` for a space, one token for each byte, a space put in front."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    backend = Backend(
        models.BPE(
            vocab={piece: token for token, piece in enumerate(pieces)},
            merges=[],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken(name, special=True) for name in pieces[:3]])
    hf = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    return Tokenizer(hf, name="sp", eos_ids=(2,), bos_id=1)


def ids_of(tokenizer: Tokenizer, *pieces: str) -> list[int]:
    known = tokenizer.token_map()
    return [known[piece] for piece in pieces]


class TestPieces:
    def test_leading_spaces_are_kept(self) -> None:
        assert TOY.piece(ids_of(TOY, "Ġriver")[0]) == " river"
        other = sentencepiece()
        assert other.piece(ids_of(other, "▁river")[0]) == " river"

    def test_bytes_that_are_no_character_alone_show_as_bytes(self) -> None:
        letters = byte_alphabet()
        assert TOY.piece(ids_of(TOY, letters[0xF0])[0]) == "⟨0xF0⟩"
        assert TOY.piece(ids_of(TOY, letters[0xF0] + letters[0x9F])[0]) == "⟨0xF0⟩⟨0x9F⟩"
        other = sentencepiece()
        assert other.piece(ids_of(other, "<0xF0>")[0]) == "⟨0xF0⟩"
        assert other.piece(ids_of(other, "<0x41>")[0]) == "A"

    def test_control_characters_and_markup_stay_as_they_are(self) -> None:
        pieces = {TOY.piece(token) for token in range(TOY.vocabulary)}
        assert {"\x1b[31m", "\x07", "\r", "[/INST]", "[red]x[/]", "日本"} <= pieces

    def test_special_tokens_show_their_name_and_unknown_ids_their_number(self) -> None:
        assert TOY.piece(1) == "<end>"
        assert TOY.piece(151_999) == "⟨151999⟩"

    def test_every_piece_is_text(self) -> None:
        assert all(TOY.piece(token) for token in range(TOY.vocabulary))


class TestWholeTexts:
    @given(st.text(max_size=60))
    def test_what_was_encoded_comes_back(self, text: str) -> None:
        text = text.replace("<end>", "").replace("<begin>", "")
        assert TOY.decode(TOY.encode(text)) == text.encode("utf-8", "replace").decode()

    def test_special_tokens_are_no_text(self) -> None:
        assert TOY.decode([0, *TOY.encode("the river"), 1]) == "the river"

    def test_sentencepiece_drops_the_space_that_was_put_in_front(self) -> None:
        other = sentencepiece()
        assert other.decode(ids_of(other, "<s>", "▁the", "▁river", "s")) == "the rivers"

    def test_it_is_what_transformers_decodes(self) -> None:
        for tokenizer in (TOY, sentencepiece()):
            ids = tokenizer.encode("the rivers 🙂")
            assert tokenizer.decode(ids) == tokenizer.hf.decode(
                ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )


class TestStreams:
    @settings(max_examples=200)
    @given(
        st.lists(st.integers(0, TOY.vocabulary - 1), max_size=30),
        st.lists(st.integers(0, 5), max_size=30),
    )
    def test_the_pieces_add_up_to_the_whole(self, ids: list[int], cuts: list[int]) -> None:
        stream, text, start = TOY.stream(), "", 0
        for size in cuts:
            text += stream.feed(ids[start : start + size])
            start += size
        text += stream.feed(ids[start:]) + stream.flush()
        assert text == TOY.decode(ids)

    def test_an_unfinished_character_is_held_back(self) -> None:
        first, second = (token for token in TOY.encode("🙂"))
        stream = TOY.stream()
        assert stream.feed([first]) == ""
        assert stream.feed([second]) == "🙂"

    def test_broken_bytes_are_replaced_as_soon_as_they_are_known_to_be(self) -> None:
        first, _ = TOY.encode("🙂")
        stream = TOY.stream()
        stream.feed([first])
        assert stream.feed(TOY.encode(" river")) == "\ufffd river"

    def test_flush_gives_what_was_held_back(self) -> None:
        stream = TOY.stream()
        stream.feed(TOY.encode("🙂")[:1])
        assert stream.flush() == "\ufffd"
        assert stream.flush() == ""


class TestChat:
    TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}me:"

    def test_without_a_template_there_is_no_chat(self) -> None:
        assert not TOY.has_chat
        with pytest.raises(UserError, match="--no-chat"):
            TOY.encode("x", chat=True)

    def test_the_template_carries_the_prompt(self) -> None:
        hf: Any = toy_tokenizer()
        hf.chat_template = self.TEMPLATE
        tokenizer = Tokenizer(hf, name="chat", eos_ids=(1,))
        assert tokenizer.has_chat
        assert tokenizer.decode(tokenizer.encode("the river", chat=True)) == (
            "user: the river\nme:"
        )

    def test_a_format_leaves_the_first_token_to_the_tokenizer(self) -> None:
        hf = sentencepiece().hf
        hf.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
        for written in ("the river {prompt}", "<s>the river {prompt}"):
            template = format_template(hf, written)
            tokenizer = Tokenizer(hf, name="f", eos_ids=(2,), bos_id=1, template=template)
            ids = tokenizer.encode("{prompt} s", chat=True)
            assert ids.count(1) == 1
            assert ids[0] == 1
            assert tokenizer.decode(ids) == "the river {prompt} s"

    def test_thinking_is_off_unless_asked_for(self) -> None:
        hf: Any = toy_tokenizer()
        hf.chat_template = "{{ messages[0].content }}{% if not enable_thinking %} stone{% endif %}"
        for thinking, said in ((False, "the river stone"), (True, "the river")):
            template = own_template(hf, thinking=thinking)
            tokenizer = Tokenizer(hf, name="chat", eos_ids=(1,), template=template)
            assert tokenizer.decode(tokenizer.encode("the river", chat=True)) == said

    def test_thinking_needs_a_template_that_knows_of_it(self) -> None:
        hf: Any = toy_tokenizer()
        hf.chat_template = self.TEMPLATE
        with pytest.raises(UserError, match="--thinking"):
            own_template(hf, thinking=True)


class TestWithoutTokenizer:
    def test_ids_can_be_shown_and_texts_are_refused(self) -> None:
        none = Tokenizer(None, name="bare", eos_ids=(1,), vocabulary=10)
        assert none.piece(7) == "⟨7⟩"
        with pytest.raises(UserError, match="prompt_ids"):
            none.encode("x")


class TestComparing:
    def test_the_same_map_agrees(self) -> None:
        assert first_difference(TOY, Tokenizer(toy_tokenizer(), name="b", eos_ids=())) is None

    def test_tokens_that_only_one_knows_are_no_difference(self) -> None:
        larger = sentencepiece(("▁the", "▁river", "s", "▁", "more"))
        assert first_difference(sentencepiece(), larger) is None
        assert first_difference(larger, sentencepiece()) is None

    def test_the_first_differing_token_is_named(self) -> None:
        swapped = sentencepiece(("▁the", "s", "▁river", "▁"))
        assert first_difference(sentencepiece(), swapped) == (
            "token '▁river' is 260 for the target and 261 for the draft"
        )

    def test_one_id_for_two_tokens_is_no_difference_but_never_drafted(self) -> None:
        other = sentencepiece(("▁the", "▁lake", "s", "▁"))
        assert first_difference(sentencepiece(), other) is None
        assert known_to_one(sentencepiece(), other) == [260]

    def test_what_only_one_knows_is_never_drafted(self) -> None:
        larger = sentencepiece(("▁the", "▁river", "s", "▁", "more", "less"))
        assert known_to_one(sentencepiece(), larger) == [263, 264]
        assert known_to_one(larger, sentencepiece()) == [263, 264]

    def test_added_tokens_count(self) -> None:
        changed = sentencepiece()
        changed.hf.add_tokens(["<image>"])
        other = sentencepiece(("▁the", "▁river", "s", "▁", "more"))
        other.hf.add_tokens(["<image>"])
        assert first_difference(changed, other) == (
            "token '<image>' is 263 for the target and 264 for the draft"
        )
        assert known_to_one(changed, sentencepiece()) == [263]

    def test_ids_that_neither_knows_may_be_drafted(self) -> None:
        assert known_to_one(sentencepiece(), sentencepiece()) == []
        bare = Tokenizer(None, name="bare", eos_ids=(), vocabulary=300)
        assert known_to_one(bare, sentencepiece()) == []
