//! Worker processes of one run, and signals to them.
//!
//! They are known by a mark in their environment, which whoever starts the run sets and all that
//! it starts inherit: also those whose parent is gone.

use monarch_controller::ProcessHandle;
use std::collections::BTreeSet;
use std::fs;
use std::io;

/// The mark's variable.
pub const MARK: &str = "MONARCH_CHAOS";

/// A process that carries a mark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its slot, for a worker that a controller started; others come after those.
    pub slot: Option<u32>,
    pub pid: i32,
    pub is_worker: bool,
}

/// All living processes with this mark but the calling one.
pub fn marked(mark: &str) -> Vec<Process> {
    let me = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| u32::try_from(*pid) != Ok(me)).filter_map(|pid| look(pid, mark)).collect()
}

/// Workers of the run with this mark, those with a slot first, in its order.
pub fn workers(mark: &str) -> Vec<Process> {
    let mut found: Vec<Process> = marked(mark).into_iter().filter(|p| p.is_worker).collect();
    found.sort_by_key(|p| (p.slot.is_none(), p.slot, p.pid));
    found
}

/// None also for one that has ended: it has no environment any more.
fn look(pid: i32, mark: &str) -> Option<Process> {
    let wanted = format!("{MARK}={mark}");
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    if !environment.split(|b| *b == 0).any(|v| v == wanted.as_bytes()) {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let args: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    let after = |name: &[u8]| args.iter().position(|a| *a == name).and_then(|i| args.get(i + 1));
    let slot = after(b"--slot").and_then(|s| std::str::from_utf8(s).ok()?.parse().ok());
    Some(Process { slot, pid, is_worker: args.get(1).is_some_and(|a| *a == b"worker") })
}

/// A process that can be signalled: never another one that got its number.
#[derive(Debug)]
pub struct Target {
    pub process: Process,
    handle: ProcessHandle,
}

impl Target {
    /// None when it has ended meanwhile.
    pub fn open(process: Process, mark: &str) -> Option<Target> {
        let handle = ProcessHandle::open(u32::try_from(process.pid).ok()?)?;
        // The handle is of whoever has the number now.
        look(process.pid, mark)?;
        Some(Target { process, handle })
    }

    /// False when it has ended.
    pub fn send(&self, signal: i32) -> bool {
        self.handle.send(signal)
    }
}

/// Victims by shares; with `holders`, so that one of those stays alive.
pub fn pick(
    mut workers: Vec<Process>,
    shares: &[f64],
    holders: Option<&BTreeSet<i32>>,
) -> Vec<Process> {
    let mut victims = Vec::new();
    for share in shares {
        let count = workers.len();
        let start = (share * count as f64) as usize;
        let stays = |victim: usize| {
            let others = workers.iter().enumerate().filter(|(i, _)| *i != victim);
            holders.is_none_or(|known| others.map(|o| o.1).any(|p| known.contains(&p.pid)))
        };
        let Some(victim) = (0..count).map(|i| (start + i) % count).find(|i| stays(*i)) else {
            break;
        };
        victims.push(workers.remove(victim));
    }
    victims
}

/// Kills all that carry the mark, until none is left; at most for about two seconds.
///
/// # Errors
/// Those that would not go.
pub fn sweep(mark: &str) -> io::Result<()> {
    for _ in 0..400 {
        let left = marked(mark);
        if left.is_empty() {
            return Ok(());
        }
        for target in left.into_iter().filter_map(|p| Target::open(p, mark)) {
            target.send(libc::SIGKILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let left: Vec<String> = marked(mark).iter().map(|p| p.pid.to_string()).collect();
    match left.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(format!("processes do not end: {}", left.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_marked_are_found_and_swept() {
        let mark = format!("test-{}", std::process::id());
        let mut child = Command::new("sleep").arg("600").env(MARK, &mark).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // The environment is there once the program is.
        while marked(&mark).is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(marked(&mark), [Process { slot: None, pid, is_worker: false }]);
        assert_eq!(workers(&mark), []);
        let target = Target::open(marked(&mark).remove(0), &mark).unwrap();
        assert!(target.send(libc::SIGSTOP));
        let reaper = std::thread::spawn(move || child.wait());
        sweep(&mark).unwrap();
        reaper.join().unwrap().unwrap();
        assert!(!target.send(libc::SIGCONT));
        assert!(Target::open(target.process.clone(), &mark).is_none());
    }

    fn some(pids: &[i32]) -> Vec<Process> {
        let worker = |pid: &i32| Process { slot: None, pid: *pid, is_worker: true };
        pids.iter().map(worker).collect()
    }

    #[test]
    fn somebody_keeps_the_weights() {
        let known: BTreeSet<i32> = [1, 2, 3].into();
        let pids = |found: Vec<Process>| found.iter().map(|p| p.pid).collect::<Vec<_>>();
        for share in [0.0, 0.4, 0.99] {
            assert_eq!(pick(some(&[1, 2, 3]), &[share, share], Some(&known)).len(), 2);
            assert_eq!(pids(pick(some(&[1, 7]), &[share], Some(&known))), [7]);
            assert!(pick(some(&[1]), &[share], Some(&known)).is_empty());
            assert_eq!(pids(pick(some(&[1]), &[share], None)), [1]);
            assert!(pick(Vec::new(), &[share], None).is_empty());
        }
        assert_eq!(pids(pick(some(&[1, 2, 3]), &[0.5], Some(&known))), [2]);
    }
}
