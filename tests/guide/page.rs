//! The fenced blocks of a Markdown page.

/// One block.
pub enum Block {
    File {
        name: String,
        text: String,
    },
    Program {
        name: Option<String>,
        /// The code of the one error it must have.
        wrong: Option<String>,
        text: String,
    },
    Commands(Vec<String>),
    Printed(String),
}

/// All blocks, each with the number of its first line.
pub fn blocks(page: &str) -> Vec<(usize, Block)> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(head) = line.strip_prefix("```") else { continue };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, l)| l).take_while(|l| !l.starts_with("```")).collect();
        let text: String = body.iter().flat_map(|l| [l, "\n"]).collect();
        found.push((number + 1, block(number + 1, head, text)));
    }
    found
}

fn block(line: usize, head: &str, text: String) -> Block {
    let words: Vec<&str> = head.split_whitespace().collect();
    match words.as_slice() {
        ["mon"] => Block::Program { name: None, wrong: None, text },
        ["mon", "wrong", code] => Block::Program { name: None, wrong: Some((*code).into()), text },
        ["mon", name] => Block::Program { name: Some((*name).into()), wrong: None, text },
        ["json" | "csv" | "rhai", name] => Block::File { name: (*name).into(), text },
        ["sh"] => Block::Commands(text.lines().map(String::from).collect()),
        ["text"] => Block::Printed(text),
        _ => panic!("line {line}: a block `{head}` means nothing to this test"),
    }
}
