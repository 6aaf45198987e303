//! Where samples come from.

use wincode::{SchemaRead, SchemaWrite};

/// Where samples come from. Files carry a hash: every worker must see the same bytes.
#[derive(Clone, Debug, PartialEq, SchemaWrite, SchemaRead)]
pub enum Source {
    /// Bundled: 1,797 images of 8 x 8 (x f32[64] scaled to -1..1, y i32). Shuffled once by a
    /// fixed permutation before it is split, since neighbours in the file share a writer.
    Digits,
    /// Columns of a safetensors file; the first axis of each counts samples.
    Tensors { file: DataFile },
    /// Windows of `window` + 1 characters, side by side (ids, next: i32[window]). The files are
    /// joined in this order. `train` and `eval` are cut by position in the text.
    Text { files: Vec<DataFile>, window: u64, vocabulary: Vec<char> },
    /// Windows of `window` + 1 token ids, side by side within each file (ids, next: i32[window]).
    /// Files hold nothing but little-endian numbers of `width`.
    Tokens { files: Vec<DataFile>, window: u64, width: TokenWidth, mix: Vec<MixPart> },
    /// Records of JSON lines or of CSV: a column for each field, or, with `chat`, token ids.
    Records { files: Vec<DataFile>, format: RecordFormat, fields: Vec<Field>, chat: Option<Chat> },
}

impl Source {
    /// The files that samples are made of, tokenizers included.
    pub fn files(&self) -> Vec<&DataFile> {
        match self {
            Source::Digits => Vec::new(),
            Source::Tensors { file } => vec![file],
            Source::Text { files, .. } | Source::Tokens { files, .. } => files.iter().collect(),
            Source::Records { files, chat, .. } => {
                files.iter().chain(chat.iter().flat_map(|c| c.tokenizer.file())).collect()
            }
        }
    }

    /// As [`Source::files`], to be changed.
    pub fn files_mut(&mut self) -> Vec<&mut DataFile> {
        match self {
            Source::Digits => Vec::new(),
            Source::Tensors { file } => vec![file],
            Source::Text { files, .. } | Source::Tokens { files, .. } => files.iter_mut().collect(),
            Source::Records { files, chat, .. } => {
                let tokenizer = chat.iter_mut().flat_map(|c| match &mut c.tokenizer {
                    Tokenizer::Bytes => None,
                    Tokenizer::File(file) => Some(file),
                });
                files.iter_mut().chain(tokenizer).collect()
            }
        }
    }

    /// Tokens of one sample; None for samples that are not made of tokens.
    pub fn tokens_per_sample(&self) -> Option<u64> {
        match self {
            Source::Text { window, .. } | Source::Tokens { window, .. } => Some(*window),
            Source::Records { chat, .. } => chat.as_ref().map(|c| c.pack),
            Source::Digits | Source::Tensors { .. } => None,
        }
    }
}

/// A file as the planner saw it.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct DataFile {
    pub path: String,
    pub bytes: u64,
    pub sha256: [u8; 32],
}

/// How a token id is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum TokenWidth {
    U16,
    U32,
}

impl TokenWidth {
    pub fn bytes(self) -> u64 {
        match self {
            TokenWidth::U16 => 2,
            TokenWidth::U32 => 4,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            TokenWidth::U16 => "u16",
            TokenWidth::U32 => "u32",
        }
    }
}

/// All shares of a mix together.
pub const MIX_WHOLE: u32 = 1_000_000;

/// A part of a mix: some of the files, and how many of [`MIX_WHOLE`] samples are theirs.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct MixPart {
    pub name: String,
    /// Places in the list of files.
    pub files: Vec<u32>,
    pub share: u32,
}

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum RecordFormat {
    /// One JSON object on each line.
    Jsonl,
    /// Comma-separated values (RFC 4180); the first line names the columns.
    Csv,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Field {
    pub name: String,
    pub kind: FieldKind,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum FieldKind {
    Text,
    /// Numbers as f32, in nested lists of these lengths.
    Float(Vec<u64>),
    /// Whole numbers as i32, in nested lists of these lengths.
    Int(Vec<u64>),
}

/// Records as token ids: each is a conversation, packed into samples of `pack` tokens
/// (ids, next: i32[pack], weight: f32[pack]).
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Chat {
    pub template: ChatTemplate,
    pub tokenizer: Tokenizer,
    /// In the order in which they are said.
    pub turns: Vec<Turn>,
    pub pack: u64,
}

/// How turns become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum ChatTemplate {
    /// `<|start_header_id|>role<|end_header_id|>`, two line ends, the words, `<|eot_id|>`.
    Llama3,
    /// `<|im_start|>role`, a line end, the words, `<|im_end|>`, a line end.
    ChatMl,
}

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub struct Turn {
    /// `system`, `user`, `assistant`
    pub role: String,
    /// The field that holds its words.
    pub field: String,
    /// Whether the model learns to say it: only these tokens have a weight of 1.
    pub learned: bool,
}

/// What turns text into ids.
#[derive(Clone, Debug, PartialEq, Eq, SchemaWrite, SchemaRead)]
pub enum Tokenizer {
    /// Ids 0..256 are bytes; the tokens of the template follow.
    Bytes,
    /// A `tokenizer.json` of byte-level BPE.
    File(DataFile),
}

impl Tokenizer {
    pub fn file(&self) -> Option<&DataFile> {
        match self {
            Tokenizer::Bytes => None,
            Tokenizer::File(file) => Some(file),
        }
    }
}
