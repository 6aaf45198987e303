//! Time in which this machine was well: a thread on each processor ticks as a sign that threads
//! run there. What is late on a machine that does not run its threads is nobody's fault.

use crate::sys::{own_processors, stay_on};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two ticks, on a machine with few processors.
const TICK: Duration = Duration::from_millis(10);
/// Processors from which on ticks are rarer, so that all together cost no more.
const MANY: usize = 16;

/// A canary's count, on a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Count(AtomicU64);

/// A thread per processor. Dropped, they leave.
pub struct Canaries {
    counts: Arc<Vec<Count>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    tick: Duration,
}

impl Canaries {
    /// One on each processor that this process may use. Where no thread can be started, that
    /// processor is not looked after.
    pub fn start() -> Canaries {
        let processors = own_processors();
        let tick = TICK * processors.len().div_ceil(MANY).max(1) as u32;
        let counts: Vec<Count> = processors.iter().map(|_| Count::default()).collect();
        let (counts, stop) = (Arc::new(counts), Arc::new(AtomicBool::new(false)));
        let mut threads = Vec::new();
        for (place, cpu) in processors.into_iter().enumerate() {
            let (counts, stop) = (counts.clone(), stop.clone());
            let thread = std::thread::Builder::new().name("canary".into()).stack_size(64 << 10);
            let work = move || {
                stay_on(cpu);
                let Some(Count(count)) = counts.get(place) else { return };
                while !stop.load(Ordering::Relaxed) {
                    std::thread::park_timeout(tick);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            };
            match thread.spawn(work) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        Canaries { counts, stop, threads, tick }
    }

    /// Length of a tick in nanoseconds.
    pub fn tick_ns(&self) -> u64 {
        self.tick.as_nanos() as u64
    }

    /// Ticks of each so far.
    pub fn counts(&self) -> Vec<u64> {
        let count = |c: &Count| c.0.load(Ordering::Relaxed);
        self.counts.iter().take(self.threads.len()).map(count).collect()
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Healthy time: as much as the slowest of the canaries has ticked. Pure.
#[derive(Debug, Default)]
pub struct HealthyClock {
    base: Vec<u64>,
    total_ns: u64,
}

impl HealthyClock {
    /// Ticks that one canary may be ahead of another, from when they are looked at.
    const SLACK: u64 = 2;

    /// Healthy nanoseconds since the first call. Never runs backwards; stands still while any
    /// canary does, however far the others have come.
    pub fn advance(&mut self, counts: &[u64], tick_ns: u64) -> u64 {
        if self.base.len() != counts.len() {
            self.base = counts.to_vec();
            return self.total_ns;
        }
        let gained = self.base.iter().zip(counts).map(|(base, now)| now.saturating_sub(*base));
        let least = gained.min().unwrap_or(0);
        self.total_ns = self.total_ns.saturating_add(least.saturating_mul(tick_ns));
        for (base, now) in self.base.iter_mut().zip(counts) {
            *base = (*base + least).max(now.saturating_sub(HealthyClock::SLACK));
        }
        self.total_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_processor_that_stands_still_stops_the_clock() {
        let mut clock = HealthyClock::default();
        assert_eq!(clock.advance(&[5, 9], 10), 0);
        assert_eq!(clock.advance(&[6, 10], 10), 10);
        // The first one sleeps; the other's ticks are not saved up for a time when it sleeps too.
        for n in 0..100 {
            clock.advance(&[6, 11 + n], 10);
        }
        assert_eq!(clock.advance(&[6, 111], 10), 10);
        let at = clock.advance(&[30, 112], 10);
        assert!(at <= 10 + 3 * 10, "{at}");
        let after: Vec<u64> = (0..50).map(|n| clock.advance(&[31 + n, 112], 10)).collect();
        assert!(after.last().is_some_and(|last| *last <= at + 3 * 10), "{after:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// It counts no more than any canary has ticked, and in step with even ones no less than
        /// they have, but for the slack.
        #[test]
        fn never_more_than_the_slowest(
            steps in proptest::collection::vec(proptest::collection::vec(0u64..4, 3), 1..60),
        ) {
            let mut clock = HealthyClock::default();
            let mut counts = vec![7u64, 0, 3];
            let start = counts.clone();
            clock.advance(&counts, 1);
            let mut before = 0;
            for step in steps {
                counts.iter_mut().zip(step).for_each(|(count, more)| *count += more);
                let now = clock.advance(&counts, 1);
                prop_assert!(now >= before);
                before = now;
                for (count, start) in counts.iter().zip(&start) {
                    prop_assert!(now <= count - start);
                }
            }
        }
    }

    #[test]
    fn even_ticks_are_all_counted() {
        let mut clock = HealthyClock::default();
        let last = (0..1000u64).map(|n| clock.advance(&[n, n + n % 2], 1)).last();
        assert!(last.is_some_and(|ns| ns >= 995), "{last:?}");
    }

    #[test]
    fn canaries_tick_and_leave() {
        let canaries = Canaries::start();
        let first = canaries.counts();
        assert!(!first.is_empty());
        while canaries.counts().iter().zip(&first).any(|(now, then)| now <= then) {
            std::thread::yield_now();
        }
    }
}
