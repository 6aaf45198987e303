//! Shows the diagnostics of programs: `cargo run -p monarch-syntax --example explain FILE...`.

use monarch_diagnostic::{Sources, Style, render};

fn main() {
    let mut sources = Sources::new();
    for name in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&name) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{name}: {error}");
                continue;
            }
        };
        let file = sources.add(name, text.as_str());
        for diagnostic in monarch_syntax::parse(file, &text).1 {
            print!("{}", render(&diagnostic, &sources, Style::default()));
        }
    }
}
