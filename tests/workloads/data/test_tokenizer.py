from hypothesis import given
from hypothesis import strategies as st

from workloads.data import tokenizer

TRAINED = tokenizer.train(["the cat and the hat, " * 9, "naïve 你好 <|im_end|>"], 320).to_str()
ENCODER = tokenizer.for_documents(TRAINED)


@given(st.text())
def test_any_text_survives_encoding_and_decoding_unchanged(text):
    assert ENCODER.decode(ENCODER.encode(text).ids, skip_special_tokens=False) == text


def test_special_tokens_come_first_as_the_names_that_qwen_has():
    expected = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert [ENCODER.id_to_token(i) for i in range(3)] == expected


def test_a_special_token_spelled_out_in_a_document_is_text():
    assert not {0, 1, 2} & set(ENCODER.encode("a <|endoftext|> <|im_end|>").ids)


def test_frequent_words_become_one_token():
    assert len(ENCODER.encode(" the").ids) == 1


def test_little_text_gives_fewer_tokens_than_asked_for():
    assert tokenizer.train(["aaab"], 5000).get_vocab_size() < 300
