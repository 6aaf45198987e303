//! Expressions and types of random programs.

use super::Generator;

const OPERATORS: &[(&str, usize)] = &[
    ("then", 1),
    ("|>", 2),
    ("or", 3),
    ("and", 4),
    ("in", 6),
    ("==", 6),
    ("!=", 6),
    ("<", 6),
    ("<=", 6),
    (">", 6),
    (">=", 6),
    ("..", 7),
    ("+", 8),
    ("-", 8),
    ("*", 9),
    ("/", 9),
    ("@", 9),
    ("^", 11),
];

impl Generator {
    pub fn rhai(&mut self) {
        let text = self.random.pick(&[
            "```rhai note(\"x\") ```",
            "```rhai\n    if a { \"# no comment\" }\n\n  \t\n```",
        ]);
        self.put(text);
    }

    pub fn kind(&mut self) {
        if self.once(2) { self.word() } else { self.tensor() }
    }

    pub fn tensor(&mut self) {
        if self.once(2) {
            self.put("f32");
        }
        self.list("[", "]", 0, Self::axis);
    }

    fn axis(&mut self) {
        match self.random.below(6) {
            0 => self.put(".."),
            1 => self.put("_"),
            2 => self.expr(8),
            _ => self.word(),
        }
    }

    pub fn field(&mut self) {
        self.word();
        if self.once(2) {
            self.gap();
            self.put(":");
            self.space();
            self.kind();
        }
        if self.once(3) {
            self.sign("=");
            self.expr(1);
        }
    }

    pub fn arg(&mut self) {
        if self.once(2) {
            self.word();
            self.sign("=");
        }
        self.expr(1);
    }

    fn axis_arg(&mut self) {
        if self.once(3) {
            self.put("D");
            self.sign("=");
        }
        self.axis();
    }

    pub fn list(&mut self, open: &str, close: &str, least: usize, item: fn(&mut Self)) {
        self.put(open);
        self.gap();
        self.depth += 1;
        let most = if self.depth > 3 { 1 } else { 4 };
        let count = least + self.random.below(most);
        for n in 0..count {
            item(self);
            self.gap();
            if n + 1 < count || self.once(6) {
                self.put(",");
                self.space();
            }
        }
        self.depth -= 1;
        self.put(close);
    }

    /// An expression whose operators hold at least so tightly.
    pub fn expr(&mut self, least: usize) {
        self.depth += 1;
        let simple = self.depth > 5 || self.once(3);
        let choice = if simple { 0 } else { self.random.below(4) };
        match choice {
            1 if least <= 11 => {
                let fitting: Vec<&(&str, usize)> =
                    OPERATORS.iter().filter(|op| op.1 >= least).collect();
                let (symbol, strength) = *fitting[self.random.below(fitting.len())];
                let chains = !matches!(strength, 6 | 7 | 11);
                let count = if chains { 1 + self.random.below(3) } else { 1 };
                self.expr(strength + 1);
                for _ in 0..count {
                    self.sign(symbol);
                    self.expr(strength + 1);
                }
            }
            2 if least <= 10 && self.once(3) => {
                self.put("-");
                self.gap();
                self.expr(11);
            }
            2 if least <= 5 && self.once(3) => {
                self.put("not");
                self.space();
                self.expr(6);
            }
            _ => self.term(),
        }
        self.depth -= 1;
    }

    fn term(&mut self) {
        let deep = self.depth > 5;
        match self.random.below(if deep { 4 } else { 12 }) {
            0 => self.number(),
            1 => self.string(),
            2 | 3 => self.word(),
            4 => self.list("[", "]", 0, |g| g.expr(1)),
            5 => self.list("(", ")", 2, |g| g.expr(1)),
            6 => {
                self.put("(");
                self.gap();
                self.expr(1);
                self.gap();
                let tuple = self.noise > 0 && self.once(8);
                self.put(if tuple { ",)" } else { ")" });
            }
            7 => self.entries(true),
            8 => self.cond(),
            9 => {
                self.put("einsum");
                self.einops();
                self.list("(", ")", 1, Self::arg);
            }
            _ => {
                self.word();
                for _ in 0..1 + self.random.below(2) {
                    match self.random.below(3) {
                        0 => self.list("(", ")", 0, Self::arg),
                        1 => self.list("[", "]", 0, Self::axis_arg),
                        _ => {
                            self.put(".");
                            self.word();
                        }
                    }
                }
            }
        }
    }

    fn number(&mut self) {
        let number = self.random.pick(&[
            "0",
            "128_256",
            "3e-4",
            "2.5",
            "10%",
            "10 %",
            "4 GiB",
            "4GiB",
            "2B tokens",
            "448 GB/s",
            "30 min",
            "1E+3",
        ]);
        self.put(number);
    }

    fn cond(&mut self) {
        self.put("if");
        self.space();
        self.expr(2);
        self.space();
        self.branch();
        self.space();
        self.put("else");
        self.space();
        self.branch();
    }

    fn branch(&mut self) {
        self.put("{");
        self.space();
        self.expr(1);
        self.space();
        self.put("}");
    }

    fn einops(&mut self) {
        self.put("[");
        self.axes();
        for _ in 0..self.random.below(3) {
            self.put(",");
            self.space();
            self.axes();
        }
        self.sign("->");
        self.axes();
        self.put("]");
    }

    fn axes(&mut self) {
        for _ in 0..self.random.below(4) {
            match self.random.below(6) {
                0 => self.put(".."),
                1 => self.put("2"),
                2 => {
                    self.put("(H");
                    self.space();
                    self.put("K)");
                }
                _ => self.put("B"),
            }
            self.space();
        }
    }
}
