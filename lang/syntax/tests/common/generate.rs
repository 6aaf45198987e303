//! Random programs from the grammar: every production, spaces, line breaks and comments wherever
//! they may stand. Nothing in them means anything; they parse without a diagnostic.
//!
//! Included by path in the tests of other crates, so it needs nothing but the standard library.

#[path = "generate_exprs.rs"]
mod exprs;

/// A sequence of numbers that is the same everywhere (SplitMix64, Steele et al. 2014).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Once in `n` times.
    pub fn once(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'t, T: ?Sized>(&mut self, from: &[&'t T]) -> &'t T {
        from[self.below(from.len())]
    }
}

/// What was generated.
pub struct Generated {
    pub text: String,
    /// A `##` stands where it documents nothing.
    pub odd_docs: bool,
}

/// The program of a seed.
pub fn program(seed: u64) -> Generated {
    let mut random = Random(seed);
    // A third of the programs is calm, so that layout is tested and not only comments.
    let noise = [0, 4, 30][random.below(3)];
    let mut g = Generator { random, out: String::new(), noise, comments: 0, depth: 0, odd: false };
    g.lines();
    for n in 0..1 + g.random.below(6) {
        if n > 0 {
            g.out.push('\n');
            g.lines();
        }
        g.item();
    }
    g.end_of_line();
    Generated { text: g.out, odd_docs: g.odd }
}

struct Generator {
    random: Random,
    out: String,
    /// Of a hundred gaps, so many hold a comment or a line break.
    noise: usize,
    comments: usize,
    depth: usize,
    odd: bool,
}

const NAMES: &[&str] = &[
    "a",
    "b",
    "x",
    "lr",
    "depth",
    "batch",
    "model",
    "Mlp",
    "D",
    "B",
    "T",
    "H",
    "in_",
    "then_x",
    "notes",
    "on1",
    "forward",
    "until",
    "_",
    "sha256",
    "a_rather_long_name_of_a_setting",
    "E",
];

impl Generator {
    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn once(&mut self, n: usize) -> bool {
        self.random.once(n)
    }

    fn word(&mut self) {
        let name = self.random.pick(NAMES);
        self.put(name);
    }

    fn comment(&mut self, sign: &str) {
        self.comments += 1;
        let text = self.random.pick(&["what", "a = 1, { [", "é → ü", "", "why so"]);
        let text = format!("{sign} {} {text}", self.comments);
        self.put(&text);
    }

    /// Where a space, a line break or a comment may stand, and something must.
    fn space(&mut self) {
        if self.random.below(100) >= self.noise {
            return self.put(" ");
        }
        match self.random.below(6) {
            0 => self.put("   "),
            1 => self.put("\n    "),
            2 => self.put("\n\n\n  "),
            3 => self.put("\r\n\t "),
            n => {
                self.put(if n == 4 { "  " } else { "\n   " });
                let odd = n == 5 && self.once(40);
                self.odd |= odd;
                self.comment(if odd { "##" } else { "#" });
                self.put("\n ");
            }
        }
    }

    /// The same, where nothing need stand.
    fn gap(&mut self) {
        if self.random.below(100) < self.noise {
            self.space();
        }
    }

    /// A token with optional spaces around it.
    fn sign(&mut self, text: &str) {
        let word = text.starts_with(|c: char| c.is_ascii_alphabetic());
        if word || self.noise == 0 || self.once(2) {
            self.space();
        } else {
            self.gap();
        }
        self.put(text);
        self.space();
    }

    /// Lines between items, entries or statements: empty ones, comments, docs.
    fn lines(&mut self) {
        for _ in 0..self.random.below(3) {
            match self.random.below(8) {
                0 => self.put("\n"),
                1 => {
                    self.put("  ");
                    self.comment("#");
                    self.put("\n");
                }
                2 => {
                    self.comment("##");
                    if self.once(4) {
                        self.put("   # and a remark");
                    }
                    self.put("\n");
                }
                _ => {}
            }
        }
    }

    fn end_of_line(&mut self) {
        if self.once(6) {
            self.put(" ");
            self.comment("#");
        }
        self.put("\n");
    }

    fn item(&mut self) {
        match self.random.below(11) {
            0 => self.import(),
            1 | 2 => self.param(),
            3 => self.bind(),
            4 | 5 => self.layer(),
            6 => self.op(),
            7 => self.test(),
            _ => {
                let kind = self.random.pick(&["model", "data", "train", "plan", "cluster"]);
                self.put(kind);
                self.block(true);
            }
        }
    }

    fn path(&mut self) {
        self.word();
        for _ in 0..self.random.below(3) {
            self.put(".");
            if self.once(6) { self.put("*") } else { self.word() }
        }
    }

    fn string(&mut self) {
        let text = self.random.pick(&[
            "\"a\"",
            "\"\"",
            "\"runs/{run.id}\"",
            "\"a \\\"b\\\" \\u{e9}\"",
            "\"# no comment\"",
            "\"a text that takes up a good part of a line, all of it for nothing\"",
        ]);
        self.put(text);
    }

    fn import(&mut self) {
        self.put("use");
        self.space();
        if self.once(3) {
            self.string();
            if self.once(2) {
                self.space();
                self.put("sha256");
                self.space();
                self.string();
            }
        } else {
            self.path();
            if self.once(2) {
                self.gap();
                self.put(".");
                self.gap();
                self.list("{", "}", 1, Self::word);
            }
        }
        if self.once(3) {
            self.space();
            self.put("as");
            self.space();
            self.word();
        }
    }

    fn param(&mut self) {
        self.put("param");
        self.space();
        self.word();
        self.gap();
        self.put(":");
        self.space();
        self.kind();
        if !self.once(4) {
            self.sign("=");
            self.expr(7);
        }
        if self.once(2) {
            self.space();
            self.put("in");
            self.space();
            self.expr(1);
        }
    }

    fn bind(&mut self) {
        self.put("let");
        self.space();
        if self.once(4) {
            self.list("[", "]", 1, Self::word)
        } else {
            self.word()
        }
        self.sign("=");
        self.expr(1);
    }

    fn layer(&mut self) {
        self.put("layer");
        self.space();
        self.word();
        if self.once(2) {
            self.gap();
            self.list("[", "]", 0, Self::field);
        }
        if self.once(2) {
            self.gap();
            self.list("(", ")", 0, Self::field);
        }
        self.space();
        self.body();
    }

    fn op(&mut self) {
        self.put("op  ");
        self.word();
        if self.once(3) {
            self.list("[", "]", 0, Self::field);
            self.gap();
        }
        self.list("(", ")", 0, Self::field);
        if self.once(2) {
            self.sign("->");
            self.kind();
        }
    }

    fn test(&mut self) {
        self.put("test ");
        self.string();
        if self.once(3) {
            self.space();
            self.put("rejects");
            self.space();
            self.put("M0312");
        }
        self.space();
        self.script();
    }

    /// What follows the kind of a block.
    fn block(&mut self, named: bool) {
        if named {
            self.put(" ");
            self.word();
        }
        if self.once(4) {
            self.space();
            self.put("on");
            self.space();
            self.path();
        }
        match self.random.below(3) {
            0 if named => {
                self.sign("=");
                self.expr(1);
            }
            1 if named => {
                self.sign("=");
                self.expr(1);
                self.space();
                self.body();
            }
            _ => {
                self.space();
                self.body();
            }
        }
    }

    fn body(&mut self) {
        self.entries(false);
    }

    /// Entries in braces: of a body or of a record.
    fn entries(&mut self, record: bool) {
        self.put("{");
        let calm = self.depth > 2;
        self.depth += 1;
        let count = if calm { self.random.below(2) } else { self.random.below(5) };
        let lines = self.once(2);
        if lines {
            self.end_of_line();
            self.lines();
        } else {
            self.space();
        }
        for n in 0..count {
            if record && n == 0 && self.once(5) {
                self.put("..");
                self.gap();
                self.path();
            } else {
                self.entry(record);
            }
            let comma = !lines || self.once(3) || (record && self.once(2));
            let last = n + 1 == count;
            if comma && !(last && self.once(2)) {
                self.gap();
                self.put(",");
            }
            if lines && !(comma && self.once(4)) {
                self.end_of_line();
                self.lines();
            } else {
                self.space();
            }
        }
        self.depth -= 1;
        self.put("}");
    }

    fn entry(&mut self, record: bool) {
        match self.random.below(if record { 5 } else { 12 }) {
            0 => {
                self.path();
                self.sign("->");
                self.expr(1);
            }
            1..5 => {
                self.path();
                self.sign("=");
                self.expr(1);
                if self.once(8) {
                    self.space();
                    self.body();
                }
            }
            5 | 6 => {
                self.word();
                self.gap();
                self.put(":");
                self.space();
                self.tensor();
                self.sign("~");
                self.expr(1);
            }
            7 => {
                self.put("on");
                self.space();
                self.path();
                if self.once(2) {
                    self.gap();
                    self.list("(", ")", 0, Self::arg);
                }
                self.sign("=>");
                if self.once(3) { self.rhai() } else { self.expr(1) }
            }
            8 | 9 => self.func(),
            _ => {
                self.word();
                let named = self.once(3);
                self.block(named);
            }
        }
    }

    fn func(&mut self) {
        self.word();
        self.gap();
        self.list("(", ")", 0, Self::field);
        if self.once(2) {
            self.sign("->");
            self.tensor();
        }
        if self.once(2) {
            self.sign("=");
            self.expr(1);
        } else {
            self.space();
            self.script();
        }
    }

    fn script(&mut self) {
        self.put("{");
        self.end_of_line();
        self.depth += 1;
        for _ in 0..self.random.below(4) {
            self.lines();
            if self.once(3) {
                self.put("assert");
                self.space();
                self.expr(1);
            } else {
                self.bind();
            }
            self.end_of_line();
        }
        if self.once(2) {
            self.lines();
            self.word();
            self.put("(");
            self.expr(1);
            self.put(")");
            self.end_of_line();
        }
        self.depth -= 1;
        self.put("}");
    }
}
