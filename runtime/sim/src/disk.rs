//! Directories in which checkpoints are put together.

use crate::node::Part;

/// One attempt at a checkpoint.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub step: u64,
    /// As they lie on the disk.
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub attempts: Vec<Attempt>,
    pub full_until_ns: u64,
}

impl Disk {
    pub fn begin(&mut self, step: u64) -> usize {
        self.attempts.push(Attempt { step, parts: Vec::new() });
        self.attempts.len() - 1
    }

    /// A part written anew takes the place of the one of the same name.
    pub fn write(&mut self, part: Part) {
        if let Some(attempt) = self.attempts.get_mut(part.attempt) {
            attempt.parts.retain(|p| (p.rank, p.world) != (part.rank, part.world));
            attempt.parts.push(part);
        }
    }

    /// What makes this attempt no checkpoint of `weights`, with the parts that were reported.
    pub fn flaw(&self, number: usize, reported: &[(u32, u64)], weights: u64) -> Option<String> {
        let Some(attempt) = self.attempts.get(number) else {
            return Some("a checkpoint is committed that nobody began".to_string());
        };
        let Some(first) = attempt.parts.first() else {
            return Some("a checkpoint without parts is committed".to_string());
        };
        let step = attempt.step;
        for part in &attempt.parts {
            if (part.world, part.generation) != (first.world, first.generation) {
                return Some(format!("the parts of step {step} are of two generations: {part:?}"));
            }
            if part.step != step || part.weights != weights {
                return Some(format!("a part of step {step} holds other weights: {part:?}"));
            }
        }
        let there = |rank: &u32| attempt.parts.iter().any(|p| p.rank == *rank);
        let said = |rank: &u32| reported.iter().any(|(r, _)| r == rank);
        let missing = (0..first.world).find(|rank| !there(rank) || !said(rank));
        let many = reported.len() > first.world as usize;
        let generations = reported.iter().any(|(_, g)| *g != first.generation);
        if missing.is_some() || many || generations {
            let world = first.world;
            return Some(format!(
                "the checkpoint of step {step} is committed with reports of {reported:?}, and is \
                 of {world} workers"
            ));
        }
        None
    }
}
