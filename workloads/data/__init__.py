"""The data job: text to tokenizer and packed token sequences."""
