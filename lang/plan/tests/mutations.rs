//! Programs with random mistakes: whatever the check accepts is planned, or refused in words that
//! a person can use. Nothing panics, and nothing is an internal fault.

mod support;

use monarch_plan::{Facts, plan};
use support::Rng;
use support::jobs::{CHARGPT, DIGITS, LLAMA, MIXED, SMALL_GPT, files};

/// Words, numbers, signs and gaps.
fn tokens(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let class = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut last = 3;
    for c in text.chars() {
        let now = class(c);
        match out.last_mut() {
            Some(token) if now == last && now != 2 => token.push(c),
            _ => out.push(c.to_string()),
        }
        last = now;
    }
    out
}

/// `text` with one to three tokens dropped, doubled, swapped, or replaced by others of the text.
fn mutate(text: &str, rng: &mut Rng) -> String {
    let mut all = tokens(text);
    let solid = |t: &String| !t.trim().is_empty();
    for _ in 0..rng.below(1, 4) {
        let places: Vec<usize> = (0..all.len()).filter(|&i| solid(&all[i])).collect();
        let mut pick = || places[rng.below(0, places.len() as u64) as usize];
        let (i, j) = (pick(), pick());
        let numbers: Vec<usize> =
            places.iter().copied().filter(|&i| all[i].parse::<u64>().is_ok()).collect();
        match rng.below(0, 9) {
            0 => all[i].clear(),
            1 => all.swap(i, j),
            2 => all[i] = format!("{0} {0}", all[i]),
            // Other sizes, rates and exponents: such programs are often accepted.
            3..7 => {
                let at = numbers[rng.below(0, numbers.len() as u64) as usize];
                let others = ["0", "1", "2", "3", "4", "7", "16", "1e30", "4096"];
                all[at] = others[rng.below(0, others.len() as u64) as usize].into();
            }
            _ => all[i] = all[j].clone(),
        }
    }
    all.concat()
}

#[test]
fn whatever_is_accepted_is_planned() {
    let programs =
        [(DIGITS, &[][..]), (CHARGPT, &SMALL_GPT[..]), (LLAMA, &[][..]), (MIXED, &[][..])];
    let rounds: u64 = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    let (mut accepted, mut planned) = (0, 0);
    for seed in 0..rounds {
        for (text, overrides) in programs {
            let mut rng = Rng::new(seed);
            let text = if seed == 0 { text.to_owned() } else { mutate(text, &mut rng) };
            let given: Vec<(String, String)> =
                overrides.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
            let checked = monarch_check::check(&files(&text), "job.mon", &given, &[]);
            let Some(program) = checked.program else {
                assert!(seed > 0, "{:#?}", checked.diagnostics);
                continue;
            };
            accepted += 1;
            let (made, diagnostics) = plan(&program, &Facts::default());
            let fault = diagnostics.iter().find(|d| d.code == "M0399");
            assert!(fault.is_none(), "seed {seed}: {fault:#?}\n{text}");
            assert!(made.is_some() || diagnostics.iter().any(|d| d.is_error()), "no answer");
            planned += u64::from(made.is_some());
        }
    }
    // Many mistakes are none: a dropped note, a doubled sign, another size.
    assert!(
        accepted >= rounds / 2 && planned >= rounds / 4,
        "{accepted} accepted, {planned} planned"
    );
}
