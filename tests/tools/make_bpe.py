"""Writes tests/fixtures/bpe.json: a small tokenizer and what Hugging Face's `tokenizers` makes of
some texts with it. Needs `pip install tokenizers`; run from the repository's root."""

import json
import pathlib

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = [
    "The printer is broken, isn't it? I'LL restart it.",
    "  two  spaces, a\ttab\r\nand\n\n\nlines  \n",
    "numbers 1 12 123 1234 12345678 3.14159",
    "Grüße aus Köln! 東京は夜の七時。 Привет, мир. हिन्दी में लिखा है",
    "emoji 👩‍👩‍👧 and combining é, roman Ⅷ and ½",
    "fn main() { println!(\"{:?}\", vec![1, 2]); } // done",
    "<|eot_id|> is not a token in a text",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa the the the",
    " ",
    "",
]


def trained(cutter, ignore_merges):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = cutter
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    texts = [pathlib.Path(p).read_text() for p in ("README.md", "stdlib/nn.mon")]
    tokenizer.train_from_iterator(texts + TEXTS, trainer)
    return tokenizer


def main():
    llama = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    cases = []
    for cutter, ignore in ((llama, True), (gpt2, False)):
        tokenizer = trained(cutter, ignore)
        encoded = [{"text": t, "ids": tokenizer.encode(t).ids} for t in TEXTS]
        cases.append({"tokenizer": json.loads(tokenizer.to_str()), "encoded": encoded})
    text = json.dumps(cases, ensure_ascii=True, separators=(",", ":"))
    pathlib.Path("tests/fixtures/bpe.json").write_text(text + "\n")


main()
