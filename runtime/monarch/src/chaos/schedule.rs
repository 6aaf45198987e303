//! Which fault comes next: a function of a seed and the fault's number.

use monarch_graph::philox::{Purpose, name_hash, random4, unit};

/// What can be done to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `kill -9` of one worker.
    Kill,
    /// `kill -9` of two workers at once.
    Two,
    /// `kill -9` of one, and of another while the run recovers from that.
    Again,
    /// SIGSTOP, and SIGCONT soon after.
    Freeze,
    /// SIGSTOP, for as long as the run takes it to be alive; SIGCONT once it is replaced.
    Hang,
    /// SIGSTOP and SIGCONT in turn for a while.
    Slow,
    /// One more worker comes, as from another machine.
    Join,
    /// SIGTERM to one worker, which leaves in good order; nobody is started in its place.
    Drain,
    /// `kill -9` of the controller, which is started again.
    Controller,
    /// `kill -9` of all workers: only a checkpoint is left.
    All,
}

impl Kind {
    /// Each of them, as they are listed.
    pub const EACH: [Kind; 10] = [
        Kind::Kill,
        Kind::Two,
        Kind::Again,
        Kind::Freeze,
        Kind::Hang,
        Kind::Slow,
        Kind::Join,
        Kind::Drain,
        Kind::Controller,
        Kind::All,
    ];

    /// As `--kinds` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Two => "two",
            Kind::Again => "again",
            Kind::Freeze => "freeze",
            Kind::Hang => "hang",
            Kind::Slow => "slow",
            Kind::Join => "join",
            Kind::Drain => "drain",
            Kind::Controller => "controller",
            Kind::All => "all",
        }
    }

    /// As a person reads it in a table.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Kill => "kill -9 of one",
            Kind::Two => "kill -9 of two at once",
            Kind::Again => "kill -9, again in the recovery",
            Kind::Freeze => "frozen for a moment",
            Kind::Hang => "frozen for good",
            Kind::Slow => "slowed",
            Kind::Join => "one more joins",
            Kind::Drain => "SIGTERM to one",
            Kind::Controller => "kill -9 of the controller",
            Kind::All => "kill -9 of all",
        }
    }

    /// The kind of this name.
    pub fn find(name: &str) -> Option<Kind> {
        Kind::EACH.into_iter().find(|k| k.name() == name)
    }

    /// Whether it is drawn without being asked for: it leaves a holder of the weights.
    pub fn is_usual(self) -> bool {
        self != Kind::All
    }

    /// How often it is drawn, beside the others.
    fn weight(self) -> u32 {
        match self {
            Kind::Kill => 4,
            Kind::Freeze | Kind::Slow => 2,
            Kind::Hang => 2,
            Kind::Two | Kind::Again | Kind::Join | Kind::Drain => 1,
            Kind::Controller | Kind::All => 1,
        }
    }
}

/// One fault. Shares are from 0 up to, and without, 1; what they are shares of is known when it
/// strikes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// From 0.
    pub number: u64,
    pub kind: Kind,
    /// Of the longest pause before it.
    pub pause: f64,
    /// Of the workers: the first victim, and the second of kinds that have two.
    pub victims: [f64; 2],
    /// Of the longest time that it lasts.
    pub span: f64,
    /// Of a period in which a slowed worker stands still, and of the longest period.
    pub duty: [f64; 2],
}

/// All faults of a seed.
#[derive(Clone, Debug)]
pub struct Schedule {
    seed: u64,
    kinds: Vec<Kind>,
}

impl Schedule {
    /// Faults of these kinds, of which there is at least one.
    pub fn new(seed: u64, mut kinds: Vec<Kind>) -> Schedule {
        kinds.sort();
        kinds.dedup();
        Schedule { seed, kinds }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The fault of this number.
    pub fn fault(&self, number: u64) -> Fault {
        let stream = name_hash("chaos");
        let words = |half: u64| random4(self.seed, Purpose::Test, stream, 2 * number + half);
        let share = |word: u32| f64::from(unit(word));
        let [kind, pause, first, second] = words(0);
        let [span, stand, period, _] = words(1);
        Fault {
            number,
            kind: self.kind(kind),
            pause: share(pause),
            victims: [share(first), share(second)],
            span: share(span),
            duty: [share(stand), share(period)],
        }
    }

    fn kind(&self, word: u32) -> Kind {
        let all: u32 = self.kinds.iter().map(|k| k.weight()).sum();
        let mut left = word % all.max(1);
        for kind in &self.kinds {
            match left.checked_sub(kind.weight()) {
                Some(rest) => left = rest,
                None => return *kind,
            }
        }
        Kind::Kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_it_all() {
        let kinds = vec![Kind::Kill, Kind::Freeze, Kind::Two];
        let a = Schedule::new(7, kinds.clone());
        let b = Schedule::new(7, kinds.iter().rev().copied().collect());
        let of = |s: &Schedule| (0..200).map(|n| s.fault(n)).collect::<Vec<_>>();
        assert_eq!(of(&a), of(&b));
        assert_ne!(of(&a), of(&Schedule::new(8, kinds)));
        let shares =
            |f: &Fault| [f.pause, f.victims[0], f.victims[1], f.span, f.duty[0], f.duty[1]];
        assert!(of(&a).iter().flat_map(shares).all(|s| (0.0..1.0).contains(&s)));
    }

    #[test]
    fn every_kind_comes_by_its_weight() {
        let kinds: Vec<Kind> = Kind::EACH.into_iter().filter(|k| k.is_usual()).collect();
        let schedule = Schedule::new(1, kinds.clone());
        let count = |kind| (0..2000).filter(|n| schedule.fault(*n).kind == kind).count() as f64;
        let all: u32 = kinds.iter().map(|k| k.weight()).sum();
        for kind in kinds {
            let wanted = 2000.0 * f64::from(kind.weight()) / f64::from(all);
            let got = count(kind);
            assert!((got - wanted).abs() < 0.3 * wanted, "{kind:?}: {got} of {wanted}");
        }
        assert_eq!(count(Kind::All), 0.0);
    }

    #[test]
    fn names_are_found() {
        for kind in Kind::EACH {
            assert_eq!(Kind::find(kind.name()), Some(kind));
        }
        assert_eq!(Kind::find("sleep"), None);
    }
}
