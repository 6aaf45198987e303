//! `monarch lsp` with a real client: the binary, spoken to over its standard streams.

mod client;
mod features;
mod protocol;
mod sync;
