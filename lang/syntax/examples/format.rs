//! Formats programs to standard output: `cargo run -p monarch-syntax --example format FILE...`.

fn main() {
    for name in std::env::args().skip(1) {
        match std::fs::read_to_string(&name) {
            Ok(text) => print!("{}", monarch_syntax::format(0, &text).text),
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
}
